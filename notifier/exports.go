package notifier

import (
	"context"
	"crypto/sha256"
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
	// maxReads bounds the requests for exports that are read at a time, and maxReadsOfNamespace those of one namespace.
	maxReads            = 2
	maxReadsOfNamespace = 1
	// maxExportBytes bounds the documents of all exports in progress, which may last for export.DefectDojoTimeout. Those of one namespace take at most
	// half of it, so that tools of one tenant that do not answer keep no other waiting. A document of export.MaxDocumentBytes fits into that half. Each
	// export counts as minExportBytes at least, for its connection.
	maxExportBytes = 12 << 20
	minExportBytes = 64 << 10
	// exportRetry is the wait that is requested while another export is in progress.
	exportRetry = 10 * time.Second
	// outcomeAge is how long the outcome of an export is remembered that ended after its request was answered.
	outcomeAge = time.Hour
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
	release, exceeded := s.exports.Take(limits.Bound{Owner: "reads of " + namespace, Max: maxReadsOfNamespace}, limits.Bound{Owner: "reads", Max: maxReads})
	if exceeded >= 0 {
		s.answer(w, epoch, busy("too many exports at the moment"))
		return
	}
	request, err := s.readExport(w, r)
	release()
	if err == nil && request.Receiver.Namespace != namespace {
		err = fmt.Errorf("%s: want receiver.namespace", export.NamespaceHeader)
	}
	if err != nil {
		refuseBody(w, err)
		return
	}
	s.answer(w, epoch, s.exportOnce(r.Context(), request, epoch))
}

// busy is the outcome of an export that has to wait for another one.
func busy(message string) announce.Outcome {
	return announce.Outcome{Result: announce.RateLimited, Reason: export.ReasonBusy, Message: message, RetryAfter: exportRetry}
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

// ended is an export that ended after its request was answered.
type ended struct {
	// document identifies what was exported.
	document string
	outcome  announce.Outcome
}

// exportOnce exports a document, unless an export of it is in progress, or ended since the last request. After another document, it is exported again.
func (s *Server) exportOnce(ctx context.Context, r export.Request, epoch int64) announce.Outcome {
	ref := r.Receiver
	project := strings.Join([]string{ref.Type, ref.Namespace, ref.SecretName, ref.SecretKey, fmt.Sprint(r.Project)}, "\x00")
	document := fmt.Sprintf("%x %t", sha256.Sum256(r.Document), r.KeepOld)
	flight := project + "\x00" + document
	if s.exports.Used(flight) > 0 {
		return inProgress(progressRetry) // at once: waiting here would keep the document twice
	}
	isOver := false
	before, found := s.unclaimed.Get(project)
	if found {
		s.unclaimed.Remove(project)
		last := before.(ended)
		if last.document == document {
			return last.outcome
		}
		isOver = last.outcome.Result != announce.UnknownOutcome
	}
	if r.MayRunFor > 0 && !isOver {
		return inProgress(min(progressRetry, r.MayRunFor))
	}
	outcome := s.join(flight, epoch, func() announce.Outcome {
		bytes := max(len(r.Document), minExportBytes)
		release, exceeded := s.exports.Take(limits.Bound{Owner: "all", Max: maxExportBytes, Weight: bytes},
			limits.Bound{Owner: "namespace " + ref.Namespace, Max: maxExportBytes / 2, Weight: bytes}, limits.Bound{Owner: flight, Max: 1})
		outcome := busy("too many exports are in progress")
		if exceeded < 0 {
			defer release()
			outcome = s.export(ctx, r, epoch)
		}
		switch {
		case export.WasTried(outcome):
			s.unclaimed.Add(project, ended{document, outcome}, outcomeAge)
		case found: // the next request has to know that the earlier import is over
			s.unclaimed.Add(project, before, outcomeAge)
		}
		return outcome
	})
	if !outcome.IsInProgress() && export.WasTried(outcome) {
		s.unclaimed.Remove(project)
	}
	return outcome
}

// export sends a document to its tool.
func (s *Server) export(ctx context.Context, r export.Request, epoch int64) announce.Outcome {
	ref := r.Receiver
	// The export continues when its request was answered, so that its slot is free only when the tool is.
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
