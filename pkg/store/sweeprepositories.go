package store

import (
	"context"
	"database/sql"
	"errors"
)

// unusedFor is how long a receiver's records of a repository are kept after it stops running. A repository that runs again later
// is new.
const unusedFor = fixedFor

// selectUnusedRepositories lists the repositories that a receiver knows and whose state has to be updated: those whose recorded
// use differs from the actual use, and those recorded as unused before a time. A repository is used if a workload of the Scanner
// runs one of its images, or ran it last. The statement skips from one repository to the next in the primary key.
const selectUnusedRepositories = `
	WITH RECURSIVE announced(receiver_id, repository) AS (
		SELECT r.id, (SELECT min(a.repository) FROM announcements a WHERE a.receiver_id = r.id) FROM receivers r
		UNION ALL
		SELECT n.receiver_id, (SELECT min(a.repository) FROM announcements a WHERE a.receiver_id = n.receiver_id AND a.repository > n.repository)
		FROM announced n WHERE n.repository IS NOT NULL),
	known AS (
		SELECT receiver_id, repository FROM announced WHERE repository IS NOT NULL
		UNION SELECT receiver_id, repository FROM known_repositories
		UNION SELECT receiver_id, repository FROM unused_repositories),
	used AS (
		SELECT si.scanner, w.repository FROM scanner_images si ORDERED JOIN workloads w ON w.image_id = si.id
		UNION SELECT si.scanner, w.repository FROM scanner_images si ORDERED JOIN left_workloads w ON w.image_id = si.id)
	SELECT k.receiver_id, k.repository, k.scanner, k.name, k.since, k.is_used FROM (
		SELECT k.receiver_id, k.repository, r.scanner, r.name, u.since, (r.scanner, k.repository) IN (SELECT scanner, repository FROM used) AS is_used
		FROM known k ORDERED JOIN receivers r ON r.id = k.receiver_id
		LEFT JOIN unused_repositories u ON u.receiver_id = k.receiver_id AND u.repository = k.repository) AS k
	WHERE k.is_used = (k.since IS NOT NULL)
		OR k.since < CASE WHEN k.receiver_id IN (SELECT value FROM ids(?) i) THEN integer(?) ELSE integer(?) END`

// knownRepository is a repository that a receiver knows.
type knownRepository struct {
	receiver   int64
	repository string
	// scanner and name identify the receiver.
	scanner, name string
	// since is when a sweep first saw it unused; zero if none did.
	since millis
	used  bool
}

// sweepUnusedRepositories deletes what receivers know of repositories that have stopped running, unusedFor after a sweep first
// saw that, or keptWithoutRoom for the receivers without room. A repository that runs again before that keeps its records.
func (s *Store) sweepUnusedRepositories(ctx context.Context, withoutRoom []int64) error {
	args := []any{jsonArray(withoutRoom), millis{s.now().Add(-keptWithoutRoom)}, millis{s.now().Add(-unusedFor)}}
	changed, err := queryRows(ctx, s, "list repositories that nothing runs", selectUnusedRepositories, args,
		func(rows *sql.Rows) (k knownRepository, err error) {
			err = rows.Scan(&k.receiver, &k.repository, &k.scanner, &k.name, &k.since, &k.used)
			return k, err
		})
	for _, k := range changed {
		if err == nil {
			err = s.updateUse(ctx, k)
		}
	}
	return err
}

// updateUse records that a repository is used again or is unused, or deletes its records.
func (s *Store) updateUse(ctx context.Context, k knownRepository) error {
	switch {
	case k.used:
		return s.exec(ctx, "record that a repository runs again", `DELETE FROM unused_repositories WHERE receiver_id = ? AND repository = ?`,
			k.receiver, k.repository)
	case k.since.IsZero():
		return s.exec(ctx, "record that nothing runs a repository", `INSERT INTO unused_repositories (receiver_id, repository, since)
			SELECT id, ?, ? FROM receivers WHERE id = ? ON CONFLICT DO NOTHING`, k.repository, millis{s.now()}, k.receiver)
	}
	return s.deleteRepository(ctx, k)
}

// errUsedAgain means that a repository is used again since it was listed.
var errUsedAgain = errors.New("the repository is used again")

const (
	// repositoryIsUsed uses the same definition of use as selectUnusedRepositories.
	repositoryIsUsed = `SELECT EXISTS (SELECT 1 FROM scanner_images si ORDERED JOIN workloads w ON w.image_id = si.id
			WHERE si.scanner = @scanner AND w.repository = @repository)
		OR EXISTS (SELECT 1 FROM scanner_images si ORDERED JOIN left_workloads w ON w.image_id = si.id
			WHERE si.scanner = @scanner AND w.repository = @repository)`
	selectRepositoryRecords = selectRecordKeys + `WHERE receiver_id = ? AND repository = ?`
)

// deleteRepository deletes a receiver's records of a repository in batches, the announcements first. If the repository runs again
// in between, it is still known, so it is not announced as new.
func (s *Store) deleteRepository(ctx context.Context, k knownRepository) error {
	defer s.unchanged.invalidate(k.scanner, k.name)
	for more := true; more; {
		err := s.write(ctx, "delete the records of a repository that nothing runs", func(ctx context.Context, tx *session) error {
			var used bool
			if err := tx.QueryRowContext(ctx, repositoryIsUsed, sql.Named("scanner", k.scanner), sql.Named("repository", k.repository)).Scan(&used); err != nil {
				return err
			}
			if used {
				return errUsedAgain
			}
			var err error
			if _, more, err = deleteRecordPage(ctx, tx, selectRepositoryRecords, k.receiver, k.repository); err != nil || more {
				return err
			}
			for _, table := range []string{"known_repositories", "unused_repositories"} {
				if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE receiver_id = ? AND repository = ?`, k.receiver, k.repository); err != nil {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, errUsedAgain) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
