package pods

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// pagedSource is an API server with pods on several pages. The continue token of a page is the number of the next one.
type pagedSource struct {
	pages [][]string
	// expireAt is the page that cannot be read, expirations is how many more times.
	expireAt, expirations int
	// requests has the options of each list.
	requests []metav1.ListOptions
	events   *watch.FakeWatcher
}

func (s *pagedSource) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.requests = append(s.requests, options)
	page := 0
	if options.Continue != "" {
		page = int(options.Continue[0] - '0')
	}
	if page == s.expireAt && s.expirations > 0 {
		s.expirations--
		return nil, apierrors.NewResourceExpired("the continue token is too old")
	}
	listed := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}}
	if page < len(s.pages)-1 {
		listed.Continue = fmt.Sprint(page + 1)
	}
	for _, name := range s.pages[page] {
		pod := replica(1)
		pod.Name, pod.Spec.Hostname = name, "not used"
		listed.Items = append(listed.Items, *pod)
	}
	return listed, nil
}

func (s *pagedSource) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	if s.events == nil {
		return nil, errors.New("not now")
	}
	return s.events, nil
}

// withoutHostname is a function for compactSource.keep.
func withoutHostname(pod *corev1.Pod) *corev1.Pod {
	kept := pod.DeepCopy()
	kept.Spec.Hostname = ""
	return kept
}

// TestListPages: all pages make one list of the latest state. An expired list begins again, once.
func TestListPages(t *testing.T) {
	for name, tt := range map[string]struct {
		pages                 [][]string
		expireAt, expirations int
		want                  string
		wantRequests          int
	}{
		"no pod":                {[][]string{{}}, 0, 0, "", 1},
		"one page":              {[][]string{{"a", "b"}}, 0, 0, "a b", 1},
		"several":               {[][]string{{"a", "b"}, {"c"}, {"d"}}, 0, 0, "a b c d", 3},
		"expired in between":    {[][]string{{"a", "b"}, {"c"}, {"d"}}, 2, 1, "a b c d", 6},
		"expired again":         {[][]string{{"a", "b"}, {"c"}, {"d"}}, 1, 2, "error", 4},
		"expired at the start":  {[][]string{{"a"}}, 0, 1, "a", 2},
		"never to be continued": {[][]string{{"a"}, {"b"}}, 1, 100, "error", 4},
	} {
		t.Run(name, func(t *testing.T) {
			api := &pagedSource{pages: tt.pages, expireAt: tt.expireAt, expirations: tt.expirations}
			source := compactSource{source: api, keep: withoutHostname}
			got, err := source.list(t.Context(), metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.namespace!=other"})
			if len(api.requests) != tt.wantRequests {
				t.Errorf("%d requests, want %d", len(api.requests), tt.wantRequests)
			}
			for _, request := range api.requests {
				if request.ResourceVersion != "" || request.Limit != pageSize || request.FieldSelector == "" {
					t.Errorf("a request has the options %+v", request)
				}
			}
			if tt.want == "error" {
				if !apierrors.IsResourceExpired(err) {
					t.Errorf("error %v, want that the list has expired", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if names := strings.Join(namesIn(t, got), " "); names != tt.want {
				t.Errorf("pods %q, want %q", names, tt.want)
			}
			if accessor, err := meta.ListAccessor(got); err != nil || accessor.GetResourceVersion() != "42" || accessor.GetContinue() != "" {
				t.Errorf("the list is at %q (%v), want 42", accessor.GetResourceVersion(), err)
			}
		})
	}
}

// namesIn returns the names of the pods that a reflector finds in a list, and checks that the pods are stripped.
func namesIn(t *testing.T, listed runtime.Object) (names []string) {
	t.Helper()
	items, err := meta.ExtractList(listed)
	if err != nil {
		t.Fatal(err)
	}
	var d decoder
	for _, item := range items {
		pod, err := d.pod(item)
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.Hostname != "" {
			t.Errorf("pod %s has fields that are not kept", pod.Name)
		}
		names = append(names, pod.Name)
	}
	return names
}

// TestWatchEvents: pods become compact, a bookmark keeps the annotation that ends the initial events, and errors pass unchanged.
func TestWatchEvents(t *testing.T) {
	api := &pagedSource{events: watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})}
	events, err := compactSource{source: api, keep: withoutHostname}.watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	pod := replica(1)
	pod.Spec.Hostname = "not used"
	api.events.Add(pod.DeepCopy())
	added := <-events.ResultChan()
	if names := namesIn(t, &list{Items: []*Pod{added.Object.(*Pod)}}); added.Type != watch.Added || names[0] != pod.Name {
		t.Errorf("event %s of %q, want the new pod", added.Type, names)
	}
	api.events.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	bookmark, err := meta.Accessor((<-events.ResultChan()).Object)
	if err != nil {
		t.Fatal(err)
	}
	if bookmark.GetResourceVersion() != "7" || bookmark.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("the bookmark is at %q with %v", bookmark.GetResourceVersion(), bookmark.GetAnnotations())
	}
	api.events.Error(&metav1.Status{Code: http.StatusGone})
	if last := <-events.ResultChan(); last.Type != watch.Error || last.Object.(*metav1.Status).Code != http.StatusGone {
		t.Errorf("event %+v, want the error", last)
	}
}

// TestWatchError: a refused watch is an error.
func TestWatchError(t *testing.T) {
	if _, err := (compactSource{source: &pagedSource{}, keep: withoutHostname}).watch(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("no error")
	}
}
