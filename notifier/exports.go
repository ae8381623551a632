package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/export"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

const (
	// maxExports bounds the exports in progress, and with them the memory for documents. The slow tools of one namespace leave one of them to others.
	maxExports            = 2
	maxExportsOfNamespace = 1
	// exportRetry is the wait that is requested while another export is in progress.
	exportRetry = 10 * time.Second
	// reasonBusy is the reason of an export that has to wait for another one. The tool itself requests no wait.
	reasonBusy = "ExportBusy"
)

// serveExport handles one request as documented at export.Path.
func (s *Server) serveExport(w http.ResponseWriter, r *http.Request) {
	if status, problem := s.admit(w, r); problem != "" {
		http.Error(w, problem, status)
		return
	}
	epoch, admitted := s.admitSending(w, r)
	if !admitted {
		return
	}
	// The document is read only when there is a slot for it.
	namespace := r.Header.Get(export.NamespaceHeader)
	release, exceeded := s.exports.Take(limits.Bound{Owner: "namespace " + namespace, Max: maxExportsOfNamespace}, limits.Bound{Owner: "all", Max: maxExports})
	if exceeded >= 0 {
		s.answer(w, epoch, busy("too many exports at the moment"))
		return
	}
	defer release()
	request, err := s.readExport(w, r)
	if err == nil && request.Receiver.Namespace != namespace {
		err = fmt.Errorf("%s: want receiver.namespace", export.NamespaceHeader)
	}
	if err != nil {
		refuseBody(w, err)
		return
	}
	// A tool takes longer than a receiver of messages. Without support for deadlines, those of the server stay.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(export.Deadline))
	s.answer(w, epoch, s.export(r.Context(), request, epoch))
}

// busy is the outcome of an export that has to wait for another one.
func busy(message string) announce.Outcome {
	return announce.Outcome{Result: announce.RateLimited, Reason: reasonBusy, Message: message, RetryAfter: exportRetry}
}

// readExport decodes and validates a request.
func (s *Server) readExport(w http.ResponseWriter, r *http.Request) (request export.Request, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, export.MaxRequestBytes))
	if err != nil {
		return request, fmt.Errorf("read the export: %w", err)
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return request, fmt.Errorf("the export is not valid JSON: %w", err)
	}
	switch {
	case s.Exporters[request.Receiver.Type] == nil:
		return request, fmt.Errorf("receiver.type: there is no tool of type %.64q", request.Receiver.Type)
	case request.Project.Label(request.Receiver.Type) == "":
		return request, errors.New("project: every name is needed")
	case len(request.Document) == 0:
		return request, errors.New("document: it is missing")
	}
	return request, checkSecretOf(request.Receiver)
}

// export sends a document to its tool.
func (s *Server) export(ctx context.Context, r export.Request, epoch int64) announce.Outcome {
	ref := r.Receiver
	// The export continues when the caller disconnects, so that its slot is free only when the tool is.
	return s.attempt(context.WithoutCancel(ctx), epoch, attempt{
		receiver: ref, caller: strings.Join([]string{ref.Type, ref.Namespace, ref.SecretName, r.Scanner}, "\x00"),
		post: func(ctx context.Context, to receiver.Address) announce.Outcome {
			// Some versions of DefectDojo create a product twice for two imports at once
			// (https://github.com/DefectDojo/django-DefectDojo/issues/11154).
			release, exceeded := s.exports.Take(limits.Bound{Owner: "tool " + to.Key(), Max: 1})
			if exceeded >= 0 {
				return busy("another export to this tool is in progress")
			}
			defer release()
			return s.Exporters[ref.Type].Export(ctx, to, r)
		},
		log: []any{"export", r.Project.Label(ref.Type), "scanner", r.Scanner, "bytes", len(r.Document)},
	})
}
