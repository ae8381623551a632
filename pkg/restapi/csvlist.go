package restapi

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/spreadsheet"
)

// exportPage is the number of items of a list that are read at once. Each has at most some KiB.
const exportPage = 1000

// csvList is a list that is sent as CSV. Its items are in memory page by page.
type csvList[T any] struct {
	// name are the parts of the file's name: what the list has, and of which namespace or image.
	name []string
	// incomplete means that there are images of which the list knows nothing or not all.
	incomplete bool
	columns    spreadsheet.Columns[T]
	raw        *restv1.Raw
	// read passes on the items. All that it reads with its context is of one snapshot of the store. It passes on the first page soon, even if that
	// has no items: the response begins with it.
	read func(ctx context.Context, pass func([]T) error) error
}

// respond returns the response once the caller may export a list.
func (l csvList[T]) respond(ctx context.Context, a operations) (*csvResponse, error) {
	slot, err := a.exports.acquire(ctx, callerOf(ctx).user.Username)
	if err != nil {
		return nil, err
	}
	return &csvResponse{func(w http.ResponseWriter) error {
		defer slot.release()
		return l.send(ctx, a, slot, w)
	}}, nil
}

// send sends the list. After an error there is no response yet, or it is cut off.
func (l csvList[T]) send(ctx context.Context, a operations, slot *downloadSlot, w http.ResponseWriter) error {
	rows, isBegun := spreadsheet.NewWriter(slot.writer(w), l.columns, ptr.Deref(l.raw, false)), false
	pass := func(items []T) error {
		if !isBegun {
			isBegun = true
			w.Header().Set("Content-Type", spreadsheet.MediaType)
			w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": l.fileName(a.ClusterName, a.Clock.Now())}))
			if err := errors.Join(rows.WriteHeader(), http.NewResponseController(w).Flush()); err != nil {
				return err
			}
		}
		return rows.Write(items)
	}
	err := a.Store.InSnapshot(context.WithValue(ctx, exportKey{}, true), func(ctx context.Context) error {
		if err := l.read(ctx, pass); err != nil {
			return err
		}
		return pass(nil) // without items the response has not begun yet
	})
	if err != nil {
		return err
	}
	return rows.Flush()
}

// unnamed matches what the name of a file does not have.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9._]+`)

// fileName returns the name of the list's file. It begins with the name of the cluster if that has one.
func (l csvList[T]) fileName(cluster string, now time.Time) string {
	var parts []string
	if cluster != "" {
		parts = append(parts, cluster)
	}
	parts = append(parts, l.name...)
	parts = append(parts, now.UTC().Format(time.DateOnly))
	if l.incomplete {
		parts = append(parts, "incomplete")
	}
	return unnamed.ReplaceAllString(strings.Join(parts, "-"), "-") + ".csv"
}

// exportKey is the key of the contexts in which lists for exports are read.
type exportKey struct{}

func isExport(ctx context.Context) bool { return ctx.Value(exportKey{}) != nil }

// csvResponse is a response that sends a list as CSV.
type csvResponse struct {
	visit func(w http.ResponseWriter) error
}

// VisitExportFindingsResponse implements restv1.ExportFindingsResponseObject.
func (r *csvResponse) VisitExportFindingsResponse(w http.ResponseWriter) error { return r.visit(w) }

// VisitExportImageScansResponse implements restv1.ExportImageScansResponseObject.
func (r *csvResponse) VisitExportImageScansResponse(w http.ResponseWriter) error { return r.visit(w) }

// VisitExportRunningFindingsResponse implements restv1.ExportRunningFindingsResponseObject.
func (r *csvResponse) VisitExportRunningFindingsResponse(w http.ResponseWriter) error {
	return r.visit(w)
}

// VisitExportRunningWorkloadsResponse implements restv1.ExportRunningWorkloadsResponseObject.
func (r *csvResponse) VisitExportRunningWorkloadsResponse(w http.ResponseWriter) error {
	return r.visit(w)
}

// VisitExportVulnerabilitiesResponse implements restv1.ExportVulnerabilitiesResponseObject.
func (r *csvResponse) VisitExportVulnerabilitiesResponse(w http.ResponseWriter) error {
	return r.visit(w)
}

// VisitExportWorkloadsResponse implements restv1.ExportWorkloadsResponseObject.
func (r *csvResponse) VisitExportWorkloadsResponse(w http.ResponseWriter) error { return r.visit(w) }
