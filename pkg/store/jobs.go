package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/scanner-operator/scanner-operator/pkg/image"
)

// JobPurpose is what a Job was created for.
type JobPurpose string

// Purposes of Jobs.
const (
	JobCatalog JobPurpose = "catalog"
	JobMatch   JobPurpose = "match"
)

// Job is the manager's own record of a Job that it created. What a Job's pod may upload follows from this record alone, never
// from labels or owner references.
type Job struct {
	// Name is recorded before the Job is created, and UID after it: a record without a UID belongs to a Job that may not exist.
	Namespace, Name string
	UID             string
	// PodUID is the UID of the one pod that claimed this Job; empty until a pod has.
	PodUID  string
	Purpose JobPurpose
	// Key and Scope identify the image of a catalog Job; zero for match Jobs.
	Key       image.Key
	Scope     Scope
	CreatedAt time.Time
	// Scanner is the UID of the Scanner that a catalog Job was created for. Other Scanners may use the Job's result.
	Scanner string
	// ScannerNamespace is the namespace of that Scanner, or of another one that has the image now; empty if none has. It is read,
	// never saved.
	ScannerNamespace string
	// Memory is the Job's memory limit in bytes, 0 for none. MaxMemory is the highest limit that a Job for the image may get.
	Memory, MaxMemory int64
	// Worker is the container image that the Job was created with. A Job with another image than the manager's may do nothing.
	Worker string
	// SBOMPolicy is the policy by which the result of a catalog Job may be an attested or uploaded SBOM; empty if only the image's content may be
	// cataloged.
	SBOMPolicy string
	// VEXPolicy is the policy by which a catalog Job may bring OpenVEX documents that are attached to the image; empty if it may bring none.
	VEXPolicy string
	// EndedAt is zero while the Job is live. Failed reports whether it ended with a failure.
	EndedAt time.Time
	Failed  bool
	// Result is the digest of the upload that was accepted as the Job's result; empty while there is none. It is read, never saved.
	Result string
}

// SaveJob inserts a record. If there is one with the same namespace and name, only its UID is updated. An existing record keeps
// everything but its UID; an empty UID does not change it. Another UID means another Job of the same name: the claim and the leases
// of the former Job's pod end.
func (s *Store) SaveJob(ctx context.Context, job Job) error {
	if job.Name == "" {
		return errors.New("store: save job: its name is empty")
	}
	return s.write(ctx, "save job "+job.Namespace+"/"+job.Name, func(ctx context.Context, tx *session) error {
		if job.UID != "" {
			if err := endJob(ctx, tx, s.now(), `namespace = ? AND name = ? AND uid <> ?`, job.Namespace, job.Name, job.UID); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO jobs (namespace, name, uid, pod_uid, purpose, digest, platform, scope, created_at, scanner, memory, most_memory, worker, sbom_policy, vex_policy)
			VALUES (?, ?, nullif(?, ''), nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (namespace, name) DO UPDATE SET uid = coalesce(excluded.uid, jobs.uid)`,
			job.Namespace, job.Name, job.UID, job.PodUID, job.Purpose,
			job.Key.Digest, platform(job.Key.Platform), job.Scope, millis{orNow(job.CreatedAt, s.now())},
			job.Scanner, job.Memory, job.MaxMemory, job.Worker, job.SBOMPolicy, job.VEXPolicy)
		return err
	})
}

// endJob revokes what the selected Jobs hold: their leases, the pods that claimed them, and the digests of their results.
func endJob(ctx context.Context, tx *session, now time.Time, which string, args ...any) error {
	// Expired leases are ended first: the remaining ones were held until the Job's end.
	if err := expireLeases(ctx, tx, now, `holder IN (SELECT uid FROM jobs WHERE `+which+`)`, args...); err != nil {
		return err
	}
	if err := countDeadWorkers(ctx, tx, now, which, args...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM leases WHERE holder IN (SELECT uid FROM jobs WHERE `+which+`)`, args...); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE jobs SET pod_uid = NULL, result = '' WHERE `+which, args...)
	return err
}

// selectJobs takes the namespace from the use of the image: that of the Job's Scanner or, if that one no longer has the image, of
// another Scanner that has it.
const selectJobs = `
	SELECT namespace, name, coalesce(uid, ''), coalesce(pod_uid, ''), purpose, digest, platform, scope, created_at,
		scanner, memory, most_memory, worker, sbom_policy, vex_policy, ended_at, failed, result,
		coalesce((SELECT si.namespace FROM scanner_images si
			WHERE si.digest = jobs.digest AND si.scope = jobs.scope AND si.platform = jobs.platform
			ORDER BY si.scanner = jobs.scanner DESC, si.id LIMIT 1), '')
	FROM jobs `

func scanJob(row interface{ Scan(...any) error }) (Job, error) {
	var job Job
	var createdAt, endedAt millis
	err := row.Scan(&job.Namespace, &job.Name, &job.UID, &job.PodUID, &job.Purpose,
		&job.Key.Digest, (*platform)(&job.Key.Platform), &job.Scope, &createdAt,
		&job.Scanner, &job.Memory, &job.MaxMemory, &job.Worker, &job.SBOMPolicy, &job.VEXPolicy, &endedAt, &job.Failed, &job.Result, &job.ScannerNamespace)
	job.CreatedAt, job.EndedAt = createdAt.Time, endedAt.Time
	return job, orNotFound(err)
}

// selectLiveJob selects the record of a live Job by UID.
const selectLiveJob = selectJobs + `WHERE uid = ? AND ended_at IS NULL`

// JobByUID returns the record of a live Job, or ErrNotFound.
func (s *Store) JobByUID(ctx context.Context, uid string) (Job, error) {
	return scanJob(s.queryRow(ctx, "look up job "+uid, selectLiveJob, uid))
}

// LiveJobs lists the records of Jobs that have not ended, oldest first.
func (s *Store) LiveJobs(ctx context.Context) ([]Job, error) {
	return s.listJobs(ctx, `WHERE ended_at IS NULL ORDER BY created_at, namespace, name`)
}

// EndedJobs lists the records of Jobs that have ended, latest first.
func (s *Store) EndedJobs(ctx context.Context) ([]Job, error) {
	return s.listJobs(ctx, `WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, namespace, name`)
}

func (s *Store) listJobs(ctx context.Context, which string) ([]Job, error) {
	return queryRows(ctx, s, "list jobs", selectJobs+which, nil, func(rows *sql.Rows) (Job, error) { return scanJob(rows) })
}

// IsRecorded reports whether a Job has a record, live or ended: by UID or, for records without a UID, by namespace and name.
func (s *Store) IsRecorded(ctx context.Context, namespace, name, uid string) (recorded bool, err error) {
	err = s.queryRow(ctx, "find job "+namespace+"/"+name, `
		SELECT EXISTS (SELECT 1 FROM jobs WHERE uid = ?) OR EXISTS (SELECT 1 FROM jobs WHERE namespace = ? AND name = ? AND uid IS NULL)`,
		uid, namespace, name).Scan(&recorded)
	return recorded, err
}

// ClaimJob binds a live Job to the first pod that claims it. It returns ErrForeignPod for any other pod, and ErrNotFound if there is
// no such live Job. If the pod has claimed the Job before, as in all but its first call, no write transaction is needed.
func (s *Store) ClaimJob(ctx context.Context, uid, podUID string) (Job, error) {
	if podUID == "" {
		return Job{}, errors.New("store: claim job: the pod's UID is empty")
	}
	job, err := s.JobByUID(ctx, uid)
	if err != nil || job.PodUID == podUID {
		return job, err
	}
	err = s.write(ctx, "claim job "+uid, func(ctx context.Context, tx *session) (err error) {
		if _, err := tx.ExecContext(ctx, `UPDATE jobs SET pod_uid = ? WHERE uid = ? AND pod_uid IS NULL AND ended_at IS NULL`, podUID, uid); err != nil {
			return err
		}
		job, err = scanJob(tx.QueryRowContext(ctx, selectLiveJob, uid))
		if err == nil && job.PodUID != podUID {
			err = ErrForeignPod
		}
		return err
	})
	if err != nil {
		return Job{}, err
	}
	return job, nil
}

// EndJob marks a Job as ended and revokes all that it may do. Its record stays until DeleteJob. A Job that has ended before keeps
// that end; a missing one is no error.
func (s *Store) EndJob(ctx context.Context, namespace, name string, at time.Time, failed bool) error {
	return s.write(ctx, "end job "+namespace+"/"+name, func(ctx context.Context, tx *session) error {
		const which = `namespace = ? AND name = ? AND ended_at IS NULL`
		if err := endJob(ctx, tx, s.now(), which, namespace, name); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE jobs SET ended_at = ?, failed = ? WHERE `+which, millis{at}, failed, namespace, name)
		return err
	})
}

// DeleteJob deletes a record by namespace and name. A missing one is no error. The leases that the Job held end; LeaseMatches
// describes what that means for their images.
func (s *Store) DeleteJob(ctx context.Context, namespace, name string) error {
	return s.write(ctx, "delete job "+namespace+"/"+name, func(ctx context.Context, tx *session) error {
		const which = `namespace = ? AND name = ?`
		if err := endJob(ctx, tx, s.now(), which, namespace, name); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM jobs WHERE `+which, namespace, name)
		return err
	})
}
