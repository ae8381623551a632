package leases

// Limit sets a worker's limits of reports, for tests; 0 leaves a limit unchanged.
func (w *Worker) Limit(sent, content int) {
	if sent > 0 {
		w.limits.sent = sent
	}
	if content > 0 {
		w.limits.content = content
	}
}
