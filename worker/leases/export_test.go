package leases

// Limit makes a worker's limits of reports small enough for a test; 0 leaves one as it is.
func (w *Worker) Limit(sent, content int) {
	if sent > 0 {
		w.limits.sent = sent
	}
	if content > 0 {
		w.limits.content = content
	}
}
