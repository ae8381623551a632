package store

import (
	"context"
	"database/sql"
)

// Status describes a store for people who run it.
type Status struct {
	// Database is SQLite, PostgreSQL or MySQL, the last one also for MariaDB.
	Database string
	// Size is how many bytes the files or the database had when CheckHealth checked them last; 0 before.
	Size int64
	// Schema is the number of the last migration when the store was opened. Revision is that of Store.Revision.
	Schema, Revision int64
	// Fault is the present fault (StorageFault); nil if there is none.
	Fault error
	// Engines are those with a data version, ordered by name.
	Engines []EngineStatus
}

// EngineStatus is an engine with its data and its queue.
type EngineStatus struct {
	Engine string
	Data   DataVersion
	// Queue is the number of images to match, as QueueLength returns it.
	Queue int
}

// Status returns the present status of the store.
func (s *Store) Status(ctx context.Context) (status Status, err error) {
	status = Status{Database: s.dialect.Name, Schema: s.schema, Fault: StorageFault(s.Health())}
	s.health.mu.Lock()
	status.Size = s.health.size
	s.health.mu.Unlock()
	if status.Revision, err = s.Revision(ctx); err != nil {
		return Status{}, err
	}
	err = s.read(ctx, "list engines", func(ctx context.Context, q query) (err error) {
		status.Engines, err = collect(ctx, q, `SELECT engine, version, built, tool, since FROM data_versions ORDER BY engine`, nil, func(rows *sql.Rows) (e EngineStatus, err error) {
			var built, since millis
			err = rows.Scan(&e.Engine, &e.Data.Version, &built, &e.Data.Tool, &since)
			e.Data.Built, e.Data.Since = built.Time, since.Time
			return e, err
		})
		return err
	})
	for i := range status.Engines {
		if err == nil {
			status.Engines[i].Queue, err = s.QueueLength(ctx, status.Engines[i].Engine)
		}
	}
	if err != nil {
		return Status{}, err
	}
	return status, nil
}
