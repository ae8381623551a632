package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

// Present implements Announcements. No more than one repository's findings are held at a time.
func (s *SQLite) Present(ctx context.Context, scanner, receiver string, f NewsFilter, worst int) (present Present, err error) {
	err = s.read(ctx, "look at what is present", func(ctx context.Context, q query) error {
		repositories, err := running(ctx, q, scanner, f.Engine)
		if err != nil {
			return err
		}
		search, err := newNewsSearch(ctx, q, scanner, receiver, f)
		if err != nil {
			return err
		}
		present.Moment = momentOf(repositories)
		for _, r := range repositories {
			counts, err := s.countRepository(ctx, q, r)
			if err != nil {
				return err
			}
			news, err := search.list(ctx, r)
			if err != nil {
				return err
			}
			present.Counts = plus(present.Counts, counts)
			present.add(r.name, news, worst)
		}
		return nil
	})
	if err != nil {
		return Present{}, err
	}
	return present, nil
}

// add takes in the news of one repository, which are ordered.
func (p *Present) add(repository string, news []News, worst int) {
	if len(news) == 0 {
		return
	}
	p.News += len(news)
	p.Repositories = append(p.Repositories, repository)
	all := slices.Concat(p.Worst, news[:min(worst, len(news))])
	slices.SortFunc(all, func(a, b News) int {
		return cmp.Or(finding.Worse(a.Finding, b.Finding), cmp.Compare(a.Repository, b.Repository))
	})
	p.Worst = slices.Clone(all[:min(worst, len(all))])
}

// momentOf names what runs and what is found in it: the states of its reports never come twice.
func momentOf(repositories []runningRepository) string {
	sum := sha256.New()
	for _, r := range repositories {
		fmt.Fprintf(sum, "%q %s\n", r.name, r.state())
	}
	return hex.EncodeToString(sum.Sum(nil))
}

const announceAll = `WITH ` + wanted + `
	INSERT INTO announcements (receiver_id, repository, canonical_id, package, digest_id, announced_at)
	SELECT DISTINCT @receiver, @repository, v.canonical_id, wanted.package, @digest, @at
	FROM wanted CROSS JOIN vulnerabilities v ON v.id = wanted.vulnerability_id
	WHERE true ON CONFLICT DO NOTHING`

// saveAll announces all that passes, unless it is no longer what was looked at. Nothing of it is read into memory;
// a million findings take some seconds, in which other writers wait.
func saveAll(ctx context.Context, tx *sql.Tx, scanner, receiver string, said Announced, at time.Time) error {
	repositories, err := running(ctx, tx, scanner, said.All.Filter.Engine)
	if err != nil {
		return err
	}
	if momentOf(repositories) != said.All.Moment {
		return ErrChanged
	}
	search, err := newNewsSearch(ctx, tx, scanner, receiver, said.All.Filter)
	if err != nil {
		return err
	}
	for _, r := range repositories {
		args, err := search.of(r)
		if err != nil {
			return err
		}
		args = append(args, sql.Named("digest", said.DigestID), sql.Named("at", millis{at}))
		if _, err := tx.ExecContext(ctx, announceAll, args...); err != nil {
			return err
		}
	}
	return nil
}
