package store

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"hash/maphash"
	"maps"
	"math"
	"slices"

	"modernc.org/sqlite"

	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Bounds of what is held of one repository at a time. What an image holds decides how many findings it has and how long their texts are.
const (
	// maxHeldText bounds the texts of the findings that a call returns. While they are selected there may be a quarter more.
	maxHeldText = 8 << 20
	anyText     = math.MaxInt / 4
	// maxPageKeys and maxPageText bound the keys whose findings or records are read together.
	maxPageKeys, maxPageText = 1000, 2 << 20
	// maxCountedKeys bounds the keys that one pass counts.
	maxCountedKeys = 500_000
)

// errFull ends a query whose further rows would exceed a bound.
var errFull = errors.New("a bound is reached")

const (
	// listCandidates lists the findings that may be a change, with what finding.Worse compares first. It reads indexes only, no row of findings.
	listCandidates = `WITH` + passingFindings + `
		SELECT wanted.id, v.canonical_id, wanted.package, wanted.known_exploited, v.epss, wanted.severity, wanted.fixable, a.receiver_id IS NOT NULL
		FROM wanted ORDERED JOIN vulnerabilities v ON v.id = wanted.vulnerability_id` + withRecord + `wanted.package
		WHERE` + differs

	// countMost counts the present findings of the reports: there are at most as many candidates.
	countMost = `SELECT coalesce(sum(present), 0) FROM reports WHERE id IN (SELECT value FROM ids(@reports) i)`
)

// candidate is a finding that may be a change. Candidates with the same ID and package have the same key.
type candidate struct {
	finding.Finding
	row int64
	key uint64
	// announced is true if the receiver has a record of the finding.
	announced bool
}

// keySeed is random, so that nobody can choose package names whose keys collide.
var keySeed = maphash.MakeSeed()

func keyHash(id, pkg string) uint64 {
	var hash maphash.Hash
	hash.SetSeed(keySeed)
	_, _ = hash.WriteString(id)
	_ = hash.WriteByte(0)
	_, _ = hash.WriteString(pkg)
	return hash.Sum64()
}

// key_hash(id, package) is keyHash in SQL. What a statement groups or sorts by is kept in memory until all rows are read: a hash takes
// eight bytes there, whatever an image names its packages.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction("key_hash", 2, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		id, idIsText := args[0].(string)
		pkg, packageIsText := args[1].(string)
		if !idIsText || !packageIsText {
			return nil, errors.New("key_hash wants two texts")
		}
		return int64(keyHash(id, pkg)), nil
	})
}

// anyFix makes a finding fixable.
var anyFix = []string{""}

// eachCandidate passes on the candidates in any order, those with the same key once for each finding.
func (l *repositoryEvaluation) eachCandidate(ctx context.Context, each func(candidate) error) error {
	return eachRow(ctx, l.q, listCandidates, l.args, func(rows *sql.Rows) error {
		var c candidate
		var fixable bool
		if err := rows.Scan(&c.row, &c.ID, &c.Package.Name, &c.KnownExploited, &c.EPSS, &c.Severity, &fixable, &c.announced); err != nil {
			return err
		}
		if fixable {
			c.FixState, c.FixVersions = finding.FixStateFixed, anyFix
		}
		c.key = keyHash(c.ID, c.Package.Name)
		return each(c)
	})
}

// eachPair passes on the candidates with their records in pages, each key once. It leaves out the candidates for which take, if not nil, returns
// true; first is true for the first candidate with a key. Its memory is bounded: with too many keys it reads the candidates several times.
func (l *repositoryEvaluation) eachPair(ctx context.Context, take func(c candidate, first bool) bool, each func([]*pair) error) error {
	var present uint64
	if err := l.q.QueryRowContext(ctx, countMost, l.args...).Scan(&present); err != nil {
		return err
	}
	passes := 1 + present/maxCountedKeys
	for pass := range passes {
		known := make(map[uint64]struct{})
		var keys keyList
		err := l.eachCandidate(ctx, func(c candidate) error {
			if c.key%passes != pass {
				return nil
			}
			count := len(known)
			known[c.key] = struct{}{}
			first := len(known) > count
			taken := take != nil && take(c, first)
			if first && !taken {
				keys.add(c)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := keys.eachPage(ctx, l, each); err != nil {
			return err
		}
	}
	return nil
}

// keyList holds the keys of candidates until all candidates are read: a database server runs one statement at a time. Beyond a bound of the
// texts, it holds only the candidates' row IDs, and reads the keys later.
type keyList struct {
	keys [][2]string
	text int
	rows []int64
}

func (k *keyList) add(c candidate) {
	if k.text >= maxHeldText {
		k.rows = append(k.rows, c.row)
		return
	}
	k.keys = append(k.keys, [2]string{c.ID, c.Package.Name})
	k.text += keyText(c.Finding)
}

// selectKeys selects the keys of some findings.
const selectKeys = `SELECT v.canonical_id, f.package` + ofFindings

// eachPage passes on the pairs of all keys in pages.
func (k *keyList) eachPage(ctx context.Context, l *repositoryEvaluation, each func([]*pair) error) error {
	page := keyPage{l: l, each: each}
	for _, key := range k.keys {
		if err := page.add(ctx, key); err != nil {
			return err
		}
	}
	for rows := range slices.Chunk(k.rows, maxPageKeys) {
		parts, err := partsByText(ctx, l.q, rows)
		if err != nil {
			return err
		}
		for _, part := range parts {
			keys, err := collect(ctx, l.q, selectKeys, []any{sql.Named("findings", jsonArray(part))}, func(rows *sql.Rows) (key [2]string, err error) {
				err = rows.Scan(&key[0], &key[1])
				return key, err
			})
			if err != nil {
				return err
			}
			for _, key := range keys {
				if err := page.add(ctx, key); err != nil {
					return err
				}
			}
		}
	}
	return page.read(ctx)
}

// keyPage collects keys, and reads their pairs when it is full.
type keyPage struct {
	l    *repositoryEvaluation
	each func([]*pair) error
	keys [][2]string
	text int
}

func (p *keyPage) add(ctx context.Context, key [2]string) error {
	p.keys = append(p.keys, key)
	p.text += len(key[0]) + len(key[1])
	if len(p.keys) < maxPageKeys && p.text < maxPageText {
		return nil
	}
	return p.read(ctx)
}

func (p *keyPage) read(ctx context.Context) error {
	present, err := p.l.presentOf(ctx, p.keys, false)
	p.keys, p.text = nil, 0
	if err != nil || len(present) == 0 {
		return err
	}
	pairs := slices.Collect(maps.Values(present))
	if err := p.l.linkAliases(ctx, pairs); err != nil {
		return err
	}
	return p.each(pairs)
}

// bounds limits how much is held: a number of values, 0 for any, and the bytes of their texts. One value is held in any case.
type bounds struct{ values, text int }

// worstOf holds the first values by an order, each under a key, within bounds.
type worstOf[T any] struct {
	bounds
	compare func(a, b T) int
	size    func(T) int
	held    map[uint64]T
	used    int
	// last is set once a value was dropped: none is held that comes after it.
	last *T
}

// offer adds a value, or replaces the one under the same key if it comes before it.
func (w *worstOf[T]) offer(key uint64, value T) {
	if w.last != nil && w.compare(value, *w.last) >= 0 {
		return
	}
	if before, found := w.held[key]; found {
		if w.compare(value, before) >= 0 {
			return
		}
		w.used -= w.size(before)
	}
	if w.held == nil {
		w.held = make(map[uint64]T)
	}
	w.held[key] = value
	w.used += w.size(value)
	// Dropping seldom costs less.
	if w.values > 0 && len(w.held) > 2*w.values || w.used > w.text+w.text/4 && len(w.held) > 1 {
		w.sorted()
	}
}

// sorted returns the values within the bounds, in order, and drops the others.
func (w *worstOf[T]) sorted() []T {
	keys := slices.SortedFunc(maps.Keys(w.held), func(a, b uint64) int { return w.compare(w.held[a], w.held[b]) })
	w.used = 0
	values := make([]T, 0, len(keys))
	for i, key := range keys {
		value := w.held[key]
		size := w.size(value)
		if i > 0 && (w.values > 0 && i >= w.values || w.used+size > w.text) {
			for _, key := range keys[i:] {
				delete(w.held, key)
			}
			w.last = &values[i-1]
			break
		}
		w.used += size
		values = append(values, value)
	}
	return values
}

// newWorstKeys holds the keys of the worst candidates that a list may still hold.
func newWorstKeys(list *changeList) *worstOf[finding.Finding] {
	worst := &worstOf[finding.Finding]{bounds: list.worst.bounds, compare: finding.Worse, size: keyText}
	if last := list.worst.last; last != nil && last.Change != diff.ChangeFixed {
		worst.last = &last.Finding
	}
	return worst
}

func keyText(f finding.Finding) int { return len(f.ID) + len(f.Package.Name) }

// changeList counts the changes of some repositories and holds the worst.
type changeList struct {
	total int
	worst worstOf[reportedChange]
}

// reportedChange has the reports and names instead of the workloads that it concerns: these are the same for many.
type reportedChange struct {
	FindingChange
	concerned affected
	// of is the evaluation that knows the workloads.
	of *repositoryEvaluation
}

// newChangeList returns a list with these bounds.
func newChangeList(within bounds) *changeList {
	return &changeList{worst: worstOf[reportedChange]{bounds: within, compare: compareReported, size: reportedChange.size}}
}

func compareReported(a, b reportedChange) int {
	return cmp.Or(compareChanges(a.FindingChange, b.FindingChange), cmp.Compare(a.Repository, b.Repository))
}

// compareChanges orders by finding.Worse, with what is fixed last.
func compareChanges(a, b FindingChange) int {
	if aIsFixed := a.Change == diff.ChangeFixed; aIsFixed != (b.Change == diff.ChangeFixed) {
		if aIsFixed {
			return 1
		}
		return -1
	}
	return finding.Worse(a.Finding, b.Finding)
}

func (n reportedChange) size() int {
	return n.Finding.TextBytes() + 8*len(n.concerned.reports) + len(n.concerned.only)*64
}

// keep holds a change that is counted already.
func (n *changeList) keep(change reportedChange) {
	n.worst.offer(keyHash(change.Repository+"\x00"+change.Finding.ID, change.Finding.Package.Name), change)
}

// add counts and holds a change.
func (n *changeList) add(change reportedChange) {
	n.total++
	n.keep(change)
}

// listed returns the changes that are held, with their workloads, the worst first. Their texts are within the bounds.
func (n *changeList) listed() (changes []FindingChange) {
	text := 0
	for _, one := range n.worst.sorted() {
		if one.concerned.reports != nil {
			workloads, added := one.of.workloadsOf(one.concerned)
			if text += added; text > n.worst.text && len(changes) > 0 {
				break
			}
			one.Workloads = workloads
		}
		text += one.size()
		changes = append(changes, one.FindingChange)
	}
	return changes
}
