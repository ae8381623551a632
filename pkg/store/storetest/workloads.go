package storetest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// compareWorkloads orders workloads as the store lists them.
func compareWorkloads(a, b store.Workload) int {
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Container, b.Container), cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Reference, b.Reference),
	)
}

// distinctWorkloads returns workloads in order, each once. Those of one workload that differ only in their receivers, or in whether they
// complete, are one with the receivers of all.
func distinctWorkloads(workloads []store.Workload) (distinct []store.Workload) {
	distinct = []store.Workload{}
	for _, w := range slices.SortedFunc(slices.Values(workloads), compareWorkloads) {
		if last := len(distinct) - 1; last >= 0 && compareWorkloads(distinct[last], w) == 0 {
			names := slices.DeleteFunc(strings.Split(distinct[last].Receivers+","+w.Receivers, ","), func(name string) bool { return name == "" })
			slices.Sort(names)
			distinct[last].Receivers = strings.Join(slices.Compact(names), ",")
			distinct[last].Completes = distinct[last].Completes && w.Completes
			continue
		}
		distinct = append(distinct, w)
	}
	return distinct
}

// containerKey returns what stays of a workload in a rollout.
func containerKey(w store.Workload) store.Workload {
	w.Reference, w.Receivers, w.Completes = "", "", false
	return w
}

// imageNamed returns an image for exceptions. The registry of its reference has no port.
func imageNamed(reference, digest string) exception.Image {
	repository, named, _ := strings.Cut(reference, "@")
	repository, tag, _ := strings.Cut(repository, ":")
	return exception.Image{Reference: image.Reference{Repository: repository, Tag: tag, Digest: named}, Digest: digest}
}

func announcementKey(repository, id, pkg string) store.AnnouncementKey {
	return store.AnnouncementKey{Repository: repository, ID: id, Package: pkg}
}

// scannerImage is an image of the Scanner "scanner" in the namespace "shop".
func scannerImage(name string) store.ScannerImage {
	return store.ScannerImage{Scanner: "scanner", Namespace: "shop", Key: key(name)}
}
