package events

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// since returns the changes after a position, in the order of their namespaces.
func since(log *Log, position int64) []Change {
	changes, _, _ := log.Since(position, maxChanges, func(Change) bool { return true })
	slices.SortFunc(changes, func(a, b Change) int {
		return slices.Compare([]byte(a.Namespace+string(a.Kind)), []byte(b.Namespace+string(b.Kind)))
	})
	return changes
}

// TestObjectsThatChange checks which notifications of a cache are changes.
func TestObjectsThatChange(t *testing.T) {
	object := func(namespace, version string) *v1alpha1.Scanner {
		return &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main", ResourceVersion: version}}
	}
	log := NewLog()
	handler := (&Watcher{Log: log}).handlerOf(restv1.HintScanner)
	handler.OnAdd(object("first", "1"), true)
	handler.OnUpdate(object("resync", "1"), object("resync", "1"))
	if changes := since(log, 0); len(changes) > 0 {
		t.Errorf("the first list and a resync count as %v, want no change", changes)
	}
	handler.OnAdd(object("a-new", "2"), false)
	handler.OnUpdate(object("b-changed", "2"), object("b-changed", "3"))
	handler.OnDelete(object("c-deleted", "4"))
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: object("d-missed", "4")})
	var namespaces []string
	for _, change := range since(log, 0) {
		namespaces = append(namespaces, change.Namespace)
	}
	if want := []string{"a-new", "b-changed", "c-deleted", "d-missed"}; !slices.Equal(namespaces, want) {
		t.Errorf("the changes are in %v, want %v", namespaces, want)
	}
}

// scriptedStore answers with one error or set of changes after the other, and records from which position they are wanted.
type scriptedStore struct {
	answers []any
	asked   []store.ChangePosition
}

func (s *scriptedStore) ChangePosition(context.Context) (store.ChangePosition, error) {
	return store.ChangePosition{Revision: 1}, nil
}

func (s *scriptedStore) ChangesSince(_ context.Context, after store.ChangePosition) (store.Changes, error) {
	s.asked = append(s.asked, after)
	answer := s.answers[0]
	s.answers = s.answers[1:]
	if err, failed := answer.(error); failed {
		return store.Changes{}, err
	}
	return answer.(store.Changes), nil
}

// TestStoreThatDoesNotAnswer checks that a watcher continues at its position, and that a message is a change of its Scanner.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reader := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "zoo", Name: "main", UID: "uid-1"}},
		&v1alpha1.ClusterScanner{ObjectMeta: metav1.ObjectMeta{Name: "main", UID: "uid-2"}},
	).Build()
	db := &scriptedStore{answers: []any{
		errors.New("no answer"),
		store.Changes{Position: store.ChangePosition{Revision: 5, Message: 2}, Namespaces: []string{"shop"}, Scanners: []string{"uid-1", "uid-2", "uid-of-a-deleted-one"}},
		store.Changes{Position: store.ChangePosition{Revision: 5, Message: 2}},
	}}
	log := NewLog()
	w := &Watcher{Log: log, Store: db, Reader: reader, Logger: logr.Discard()}
	position, err := w.poll(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	began := log.End()
	for range 3 {
		if next, err := w.poll(t.Context(), position); err == nil {
			position = next
		}
	}
	if want := []store.ChangePosition{{Revision: 1}, {Revision: 1}, {Revision: 5, Message: 2}}; !slices.Equal(db.asked, want) {
		t.Errorf("the store is asked for what is after %v, want %v", db.asked, want)
	}
	want := []Change{{Kind: restv1.HintClusterScanner}, findings("shop"), {Kind: restv1.HintScanner, Namespace: "zoo"}}
	if changes := since(log, began); !slices.Equal(changes, want) {
		t.Errorf("the changes are %v, want %v", changes, want)
	}
}
