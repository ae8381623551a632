package controllers

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// unconfirmedNotices returns a notice for each receiver whose messages were given up without a confirmed delivery. The Scanner's other
// receivers get it, since the receiver itself may be unreachable.
func unconfirmedNotices(receivers map[string]announce.State) (notices []announce.Notice) {
	for name, state := range receivers {
		if u := state.Unconfirmed; u != nil {
			notices = append(notices, announce.Notice{
				ID: string(announce.NoticeUnconfirmed) + "/" + name, Kind: announce.NoticeUnconfirmed, Name: name, Since: u.Since, Count: u.Count,
			})
		}
	}
	return notices
}

// coverageFor returns the part of the coverage that a destination gets messages about, with the notices about the other receivers added. In
// repositories of images anywhere in the whole coverage whose content is not known, nothing counts as fixed that may be in them.
func (o *notificationScope) coverageFor(to destination) announce.Coverage {
	coverage := o.coverage
	if len(to.namespaces) != len(o.covered.Namespaces.Covered) && to.namespaces != nil {
		part := describeCoverage(o.covered.In(to.namespaces), o.gaps)
		coverage.Images, coverage.Namespaces, coverage.Others = part.Images, part.Namespaces, part.Others
		// A namespace that moves to another channel during a rollout leaves its announcements here. Its new image may have the findings too.
		coverage.OtherGaps = o.coverage.Gaps()
	}
	coverage.Notices = slices.Clone(coverage.Notices)
	for _, n := range o.unconfirmed {
		if n.Name != to.name() {
			coverage.Notices = append(coverage.Notices, n)
		}
	}
	slices.SortStableFunc(coverage.Notices, func(a, b announce.Notice) int { return cmp.Compare(a.ID, b.ID) })
	return coverage
}

// emitGivenUp emits an event if a message was given up in this delivery run.
func (r *NotificationReconciler) emitGivenUp(scanner v1alpha1.GenericScanner, receiver string, p announce.DispatchResult) {
	before, after := p.Before.Unconfirmed, p.After.Unconfirmed
	if after == nil || before != nil && before.Count == after.Count {
		return
	}
	note := truncate("receiver "+receiver+": "+after.Describe(), maxEventNote)
	r.Events.Eventf(scanner, nil, corev1.EventTypeWarning, announce.ReasonUnconfirmed, "Notify", "%s", note)
}
