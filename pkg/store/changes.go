package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unsafe"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/announce/evidence"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// FindingChange is one change that a receiver has not been notified of. It concerns a vulnerability in a package in those images of a
// repository that are in use: they run, or their last pods have ended recently. Repository, vulnerability and package are the
// identity of an announcement.
type FindingChange struct {
	Change     diff.Change
	Repository string
	// Finding is the worst finding with this repository, vulnerability ID and package name that is not suppressed. With diff.ChangeFixed
	// it has only what was recorded with its announcement: ID, aliases, package name, severity.
	Finding finding.Finding
	// FirstSeen is when the store first recorded the finding. FixSince is since when a fix is known, by the engine's own date or else
	// the store's. ExploitedSince is since when the store knows it to be exploited. They are zero where that does not apply.
	FirstSeen, FixSince, ExploitedSince time.Time
	// SeverityBefore is the severity at the time of the announcement or, for a finding that was never announced, before its severity
	// changed. It equals the finding's severity if that has not changed.
	SeverityBefore finding.Severity
	// ExceptionEnded means that an exception suppressed the finding and has ended.
	ExceptionEnded bool
	// Workloads that run an image with the finding, and for which no exception suppresses it; with diff.ChangeFixed those that run the repository.
	Workloads []Workload
}

// Located returns the repository and the finding, as package action wants them.
func (c FindingChange) Located() (repository string, f *finding.Finding) {
	return c.Repository, &c.Finding
}

// PendingChanges lists what a receiver was not notified of, ordered by repository and then finding.Worse, with what is fixed last. At
// most limit entries and some MiB of text, but one entry at least if there is any; limit 0 is for all, whatever memory that takes.
// Of more than these, the worst of all repositories are listed. total is the number of all. UpdateAnnouncements comes before it. The filter
// applies to findings: a vulnerability in a package of a repository is a change if any of its findings passes. It is described by
// the worst finding that passes, with the workloads that have such a finding. An empty UnknownPolicy is UnknownIfFixable.
func (s *Store) PendingChanges(ctx context.Context, scanner, receiver string, f ChangeFilter, limit int) (pending []FindingChange, total int, err error) {
	detector, err := s.newChangeDetector(ctx, "pending changes", scanner, receiver, f)
	if err != nil {
		return nil, 0, err
	}
	within := bounds{values: limit, text: maxHeldText}
	if limit == 0 {
		within.text = anyText
	}
	var list *changeList
	err = s.read(ctx, "list pending changes", func(ctx context.Context, q query) error {
		list, err = detector.pendingChanges(ctx, q, within)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	pending = list.listed()
	slices.SortFunc(pending, func(a, b FindingChange) int {
		return cmp.Or(cmp.Compare(a.Repository, b.Repository), compareChanges(a, b))
	})
	return pending, list.total, nil
}

// PendingChangesOf is PendingChanges of some findings, however many there are. Findings that are not present, or do not pass the filter, are missing.
func (s *Store) PendingChangesOf(ctx context.Context, scanner, receiver string, f ChangeFilter, keys []AnnouncementKey) ([]FindingChange, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	detector, err := s.newChangeDetector(ctx, "pending changes of some findings", scanner, receiver, f)
	if err != nil {
		return nil, err
	}
	byRepository := make(map[string][][2]string)
	detector.cache, detector.only = nil, make(map[string]bool)
	for _, key := range keys {
		byRepository[key.Repository] = append(byRepository[key.Repository], [2]string{key.ID, key.Package})
		detector.only[key.Repository] = true
	}
	var list *changeList
	err = s.read(ctx, "list pending changes of some findings", func(ctx context.Context, q query) error {
		list = newChangeList(bounds{text: anyText})
		return detector.each(ctx, q, func(ctx context.Context, l *repositoryEvaluation) (quiet bool, err error) {
			page := keyPage{l: l, each: func(pairs []*pair) error {
				l.changesOf(pairs, list.add)
				return nil
			}}
			for _, key := range byRepository[l.name] {
				if err := page.add(ctx, key); err != nil {
					return false, err
				}
			}
			return false, page.read(ctx)
		})
	})
	if err != nil {
		return nil, err
	}
	return list.listed(), nil
}

// pendingChanges collects the changes of all repositories. If they exceed the bounds and whole repositories are wanted, it collects those of the
// repositories that fit, beginning with the one of the worst change.
func (t *changeDetector) pendingChanges(ctx context.Context, q query, within bounds) (*changeList, error) {
	list, totals := newChangeList(within), make(map[string]int)
	err := t.each(ctx, q, func(ctx context.Context, l *repositoryEvaluation) (quiet bool, err error) {
		before := list.total
		err = l.pendingChanges(ctx, list)
		if n := list.total - before; n > 0 {
			totals[l.name] = n
		}
		return list.total == before, err
	})
	if err != nil || !t.filter.WholeRepositories || within.values == 0 || list.total <= within.values {
		return list, err
	}
	only, left := make(map[string]bool), within.values
	for _, change := range list.worst.sorted() {
		if name := change.Repository; !only[name] && (len(only) == 0 || totals[name] <= left) {
			only[name] = true
			left -= totals[name]
		}
	}
	whole, some := newChangeList(within), *t
	some.only = only
	err = some.each(ctx, q, func(ctx context.Context, l *repositoryEvaluation) (quiet bool, err error) {
		return false, l.pendingChanges(ctx, whole)
	})
	whole.total = list.total
	return whole, err
}

// changeDetector streams what is present and what was announced to one receiver through package diff, which decides.
type changeDetector struct {
	scanner, receiver string
	filter            ChangeFilter
	absentIsFixedIn   map[string]bool
	gaps              map[string]evidence.Gap
	// only are the repositories to evaluate; nil for all. Those that come before from are left out.
	only map[string]bool
	from string
	// noRoom means that the record budget is used up, so nothing may be recorded that takes more room.
	noRoom bool
	// hasAnomaly means that the data is in quarantine, so nothing counts as fixed.
	hasAnomaly bool
	// announced are the announced sources. silent are those by repository that have not reported on one of its images. Both are sorted.
	announced []string
	silent    map[string][]string
	// cache caches for which repositories there is nothing to announce; nil for no cache. cacheKey is the common prefix of its keys.
	cache    *unchangedCache
	cacheKey string
	// readsNamespaces means that the result also depends on the namespaces that run a repository, if its absent findings count as fixed.
	readsNamespaces bool
}

func (s *Store) newChangeDetector(ctx context.Context, purpose, scanner, receiver string, f ChangeFilter) (*changeDetector, error) {
	t := &changeDetector{scanner: scanner, receiver: receiver, filter: f, absentIsFixedIn: make(map[string]bool), gaps: make(map[string]evidence.Gap)}
	for _, repository := range f.AbsentIsFixedIn {
		t.absentIsFixedIn[repository] = true
	}
	for _, repository := range f.OSPackagesUnknownIn {
		t.gaps[repository] = evidence.OSPackages
	}
	var err error
	if t.hasAnomaly, err = s.hasAnomaly(ctx, scanner, f.Engine); err != nil {
		return nil, err
	}
	// A read-only store does not see what another process writes, so it must not cache.
	if s.writer != nil {
		t.cache = &s.unchanged
		t.cacheKey = fmt.Sprintf("%s %s %s %t %q", purpose, s.unchanged.key(scanner, receiver), f.Unknown, f.OnlyFixable, f.Engine)
	}
	return t, nil
}

// facts returns what is known about a finding that no image of a repository has, if no announced source knew it and no gap concerns it.
func (t *changeDetector) facts(repository string) evidence.Facts {
	return evidence.Facts{
		Complete: t.absentIsFixedIn[repository], SameEngine: t.absentIsFixedIn[repository], DataTrusted: !t.hasAnomaly, SourcesReported: true,
	}
}

// policy returns the policy by which the findings of a repository are announced that no announced source knew and no gap concerns.
func (t *changeDetector) policy(repository string) diff.Policy {
	return diff.Policy{
		Changes: t.filter.Changes, Threshold: t.filter.threshold(), NoRoom: t.noRoom,
		AbsentIsFixed: evidence.Of(t.facts(repository)) == evidence.ProvenAbsent,
	}
}

// factsOf returns what is known about the finding of a record that no image of the repository has.
func (t *changeDetector) factsOf(repository string, r record) evidence.Facts {
	facts, silent := t.facts(repository), t.silent[repository]
	facts.SourcesReported = len(silent) == 0
	if r.sources.isRecorded {
		facts.SourcesReported = !slices.ContainsFunc(r.sources.names, func(source string) bool {
			return slices.Contains(silent, source) || !slices.Contains(t.announced, source)
		})
	}
	facts.Complete = facts.Complete && !t.gaps[repository].Concerns(r.packageTypes.names)
	return facts
}

// policyOf returns the policy for a record whose finding no image of the repository has.
func (l *repositoryEvaluation) policyOf(r record) diff.Policy {
	policy := l.policy
	policy.AbsentIsFixed = evidence.Of(l.factsOf(l.name, r)) == evidence.ProvenAbsent
	return policy
}

// hasAnomaly reports whether the data of an engine has an anomaly. If engine is empty, it checks every engine that the Scanner has
// images with.
func (s *Store) hasAnomaly(ctx context.Context, scanner, engine string) (bool, error) {
	engines := []string{engine}
	if engine == "" {
		var err error
		engines, err = queryRows(ctx, s, "list engines of scanner", `SELECT DISTINCT engine FROM scanner_images WHERE scanner = ?`,
			[]any{scanner}, scanValue[string])
		if err != nil {
			return false, err
		}
	}
	for _, engine := range engines {
		if anomaly, err := s.DataAnomaly(ctx, scanner, engine); err != nil || anomaly != nil {
			return anomaly != nil, err
		}
	}
	return false, nil
}

// each calls see for one repository after the other, except those of which the cache knows that there is nothing to announce. see returns
// whether it found nothing to announce.
func (t *changeDetector) each(ctx context.Context, q query, see func(context.Context, *repositoryEvaluation) (quiet bool, err error)) error {
	repositories, err := loadRunning(ctx, q, t.scanner, t.filter.Engine, t.filter.Route, t.usageReach())
	if err != nil {
		return err
	}
	if err := t.readSources(ctx, q); err != nil {
		return err
	}
	return t.eachOf(ctx, q, repositories, see)
}

// readSources reads the announced sources, and on which images they have not reported.
func (t *changeDetector) readSources(ctx context.Context, q query) (err error) {
	if t.announced, err = announcedSources(ctx, q, t.scanner); err != nil || len(t.announced) == 0 {
		return err
	}
	t.silent, err = silentSources(ctx, q, t.scanner, t.filter.Engine, t.filter.Route, t.usageReach())
	return err
}

// eachOf does the same for some repositories.
func (t *changeDetector) eachOf(
	ctx context.Context, q query, repositories []runningRepository, see func(context.Context, *repositoryEvaluation) (quiet bool, err error),
) error {
	receiver, err := receiverID(ctx, q, t.scanner, t.receiver)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		if r.name < t.from || t.only != nil && !t.only[r.name] {
			continue
		}
		key := t.keyOf(r)
		if t.cache != nil && t.cache.isUnchanged(key) {
			continue
		}
		l, err := t.evaluate(ctx, q, receiver, r)
		if err != nil {
			return err
		}
		quiet, err := see(ctx, l)
		if err != nil {
			return err
		}
		if quiet && t.cache != nil {
			t.cache.recordUnchanged(key)
		}
	}
	return nil
}

// keyOf returns the cache's key of a repository. While the key is equal, there is still nothing to announce or to record.
func (t *changeDetector) keyOf(r runningRepository) string {
	policy := t.policy(r.name)
	key := fmt.Sprintf("%s %q %#v %d %s", t.cacheKey, r.name, policy, t.gaps[r.name], r.stateWithExceptions(t.filter.Exceptions))
	if policy.AbsentIsFixed {
		key += fmt.Sprintf(" of %q without %q", t.announced, t.silent[r.name])
	}
	if t.readsNamespaces && policy.AbsentIsFixed {
		// A namespace that is back can run the same images as the others.
		key += " in " + jsonArray(slices.Sorted(maps.Keys(r.namespaces())))
	}
	return key
}

func (t *changeDetector) usageReach() reach {
	if t.filter.IncludeIdle {
		return reachKept
	}
	return reachInUse
}

// receiverID returns the row ID of a receiver. It returns 0, which no receiver has, for an unknown one: nothing was announced to
// it.
func receiverID(ctx context.Context, q query, scanner, receiver string) (id int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT id FROM receivers WHERE scanner = ? AND name = ?`, scanner, receiver).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// repositoryEvaluation is the evaluation of one repository.
type repositoryEvaluation struct {
	*changeDetector
	q        query
	receiver int64
	runningRepository
	policy     diff.Policy
	args       []any
	suppressed suppressions
	// hasRecords is true if the receiver has a record of the repository; nil until it is needed.
	hasRecords *bool
	// shared are the workloads that changes concern, by affected.
	shared map[string][]Workload
}

func (t *changeDetector) evaluate(ctx context.Context, q query, receiver int64, r runningRepository) (*repositoryEvaluation, error) {
	suppressed, err := r.suppressed(ctx, q, t.filter.Exceptions)
	if err != nil {
		return nil, err
	}
	args := append(t.filter.args(), sql.Named("receiver", receiver), sql.Named("repository", r.name),
		sql.Named("reports", r.reportIDs()), sql.Named("all_reports", r.allReportIDs()), sql.Named("suppressed", idsOf(suppressed.whole)))
	return &repositoryEvaluation{changeDetector: t, q: q, receiver: receiver, runningRepository: r, policy: t.policy(r.name), args: args, suppressed: suppressed}, nil
}

// with returns the parameters of the evaluation and further ones.
func (l *repositoryEvaluation) with(more ...any) []any { return append(slices.Clone(l.args), more...) }

// workloadsOf returns the workloads that a change concerns, and how many bytes it allocated for them.
func (l *repositoryEvaluation) workloadsOf(concerned affected) (workloads []Workload, added int) {
	name := fmt.Sprint(concerned)
	if workloads, found := l.shared[name]; found {
		return workloads, 0
	}
	workloads = l.runningRepository.workloadsOf(concerned)
	if l.shared == nil {
		l.shared = make(map[string][]Workload)
	}
	l.shared[name] = workloads
	return workloads, len(name) + len(workloads)*int(unsafe.Sizeof(Workload{}))
}

// pendingChanges adds the changes of the repository that are to be announced.
func (l *repositoryEvaluation) pendingChanges(ctx context.Context, list *changeList) error {
	if err := l.changed(ctx, list); err != nil {
		return err
	}
	return l.fixed(ctx, list)
}

// changed adds the changes of present findings. A receiver of ChangeNew is notified of each finding without a record: of these only the worst
// are read, and the others are counted.
func (l *repositoryEvaluation) changed(ctx context.Context, list *changeList) error {
	announced, err := l.receiverHasRecords(ctx)
	if err != nil {
		return err
	}
	isNew := l.policy.Wants(diff.ChangeNew) && !announced
	worst := newWorstKeys(list)
	take := func(c candidate, first bool) bool {
		if !isNew || c.announced {
			return false
		}
		if first {
			list.total++
		}
		worst.offer(c.key, c.Finding)
		return true
	}
	err = l.eachPair(ctx, take, func(pairs []*pair) error {
		l.changesOf(pairs, list.add)
		return nil
	})
	if err != nil {
		return err
	}
	page := keyPage{l: l, each: func(pairs []*pair) error {
		l.changesOf(pairs, list.keep)
		return nil
	}}
	for _, f := range worst.sorted() {
		if err := page.add(ctx, [2]string{f.ID, f.Package.Name}); err != nil {
			return err
		}
	}
	return page.read(ctx)
}

// changesOf passes on the findings that are announced.
func (l *repositoryEvaluation) changesOf(pairs []*pair, each func(reportedChange)) {
	for _, s := range pairs {
		if d := l.decide(s); d.Announce != "" {
			s.Change, s.SeverityBefore, s.ExceptionEnded = d.Announce, d.SeverityBefore, d.ExceptionEnded
			each(reportedChange{FindingChange: s.FindingChange, concerned: s.concerned, of: l})
		}
	}
}

// fixed adds the findings that are announced as fixed.
func (l *repositoryEvaluation) fixed(ctx context.Context, list *changeList) error {
	if !l.policy.Wants(diff.ChangeFixed) || !l.policy.AbsentIsFixed {
		return nil
	}
	everyone := l.allWorkloads()
	return l.eachAbsent(ctx, func(o absentRecord) error {
		if len(o.now) > 0 {
			return nil
		}
		if d := diff.Finding(nil, &o.Announced, l.policyOf(o.record)); d.Announce != "" {
			list.add(reportedChange{FindingChange: FindingChange{
				Change: d.Announce, Repository: l.name, SeverityBefore: d.SeverityBefore, Workloads: everyone,
				Finding: finding.Finding{ID: o.id, Aliases: o.aliases, Severity: d.SeverityBefore, Package: finding.Package{Name: o.pkg}},
			}})
		}
		return nil
	})
}
