package announce

import (
	"maps"
	"slices"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// maxBatchThreads is the largest number of threads that one notification batch replies in. With more, one message in the channel is easier to
// follow than as many replies.
const maxBatchThreads = 3

// This file splits a notification batch for a receiver with threads. New and escalated findings, new images and notices are one message in
// the channel. Other changes are replies to the messages that announced their findings, one for each thread. Each message goes through the
// outbox by itself, and the next one is computed from what is still not announced. State.Batch only lets the replies follow without another
// GroupWait and GroupInterval.

// isReply reports whether a change is sent as a reply to the message that announced the finding.
func isReply(change diff.Change) bool {
	return change == diff.ChangeFixAvailable || change == diff.ChangeRegressed || change == diff.ChangeFixed
}

// splitByThread returns the pending changes that can be sent as replies, by the thread's timestamp, and those for the channel. Without
// threads, all changes are for the channel.
func (p *planning) splitByThread() (replies map[string][]store.FindingChange, channel []store.FindingChange, err error) {
	if !p.loaded || !p.settings.Address.hasThreads() {
		return nil, p.pending, nil
	}
	var keys []store.AnnouncementKey
	for _, n := range p.pending {
		if isReply(n.Change) {
			keys = append(keys, keyOfChange(n))
		}
	}
	threads, err := p.store.Threads(p.ctx, p.scanner, p.settings.Receiver, keys)
	if err != nil {
		return nil, nil, err
	}
	replies = map[string][]store.FindingChange{}
	for _, n := range p.pending {
		thread := threads[keyOfChange(n)]
		if isReply(n.Change) && thread.Timestamp != "" && thread.Channel == p.settings.Address.Channel {
			replies[thread.Timestamp] = append(replies[thread.Timestamp], n)
		} else {
			channel = append(channel, n)
		}
	}
	return replies, channel, nil
}

func keyOfChange(n store.FindingChange) store.AnnouncementKey {
	return store.AnnouncementKey{Repository: n.Repository, ID: n.Finding.ID, Package: n.Finding.Package.Name}
}

// sendBatch sends the first message of a notification batch: the one for the channel, or the first reply if there is nothing for the channel.
func (p *planning) sendBatch(notices []Notice) (*Action, error) {
	replies, channel, err := p.splitByThread()
	if err != nil {
		return nil, err
	}
	threads := slices.Sorted(maps.Keys(replies))
	switch {
	case len(threads) == 0 || len(threads) > maxBatchThreads:
		return p.send(p.pending, notices, "", nil)
	case len(channel)+len(p.newImages)+len(notices) > 0:
		return p.send(channel, notices, "", threads)
	}
	return p.sendReply(replies, threads)
}

// continueBatch sends the next reply of a notification batch; nil if the batch is complete.
func (p *planning) continueBatch() (*Action, error) {
	if !p.loaded || len(p.state.Batch) == 0 {
		return nil, nil
	}
	replies, _, err := p.splitByThread()
	if err != nil {
		return nil, err
	}
	p.state.Batch = slices.DeleteFunc(slices.Clone(p.state.Batch), func(thread string) bool { return len(replies[thread]) == 0 })
	switch {
	case len(p.state.Batch) == 0:
		p.state.Batch = nil
		return nil, nil
	case p.now.Before(p.mayAttempt()):
		return &Action{Until: p.mayAttempt()}, nil
	}
	return p.sendReply(replies, p.state.Batch)
}

// sendReply sends the changes of the first of some threads. The other threads follow.
func (p *planning) sendReply(replies map[string][]store.FindingChange, threads []string) (*Action, error) {
	p.newImages = nil
	return p.send(replies[threads[0]], nil, threads[0], threads[1:])
}

// send composes a message about some of the pending changes, puts it into the outbox and sends it: to a thread, or to the channel if that is
// empty. The replies in further threads follow.
func (p *planning) send(changes []store.FindingChange, notices []Notice, thread string, further []string) (*Action, error) {
	p.pending = changes
	outbox, err := p.composeChanges(notices)
	if err != nil {
		return nil, err
	}
	outbox.Urgent = slices.ContainsFunc(changes, isUrgent)
	if thread != "" {
		outbox.Thread = &store.Thread{Channel: p.settings.Address.Channel, Timestamp: thread}
	}
	p.putInOutbox(outbox)
	p.state.Batch = append(p.state.Batch, further...)
	return p.deliver()
}

// replyTo returns the timestamp of the thread that the message is sent to; empty for the channel. A thread in an earlier channel of the
// receiver counts as lost.
func (o *Outbox) replyTo(address ReceiverRef) string {
	if o.Thread == nil || !address.hasThreads() || o.Thread.Channel != address.Channel {
		return ""
	}
	return o.Thread.Timestamp
}

// recordThread adds to an announcement where its message is, so that later changes can be replies to it.
func (o *Outbox) recordThread(address ReceiverRef, outcome Outcome, announcement *store.Announcement) {
	if outcome.Timestamp == "" || outcome.InThread || o.Findings == 0 || !address.hasThreads() {
		return
	}
	announcement.Thread = &store.Thread{Channel: address.Channel, Timestamp: outcome.Timestamp}
	announcement.LostThread = o.replyTo(address)
}
