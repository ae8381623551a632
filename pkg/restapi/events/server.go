package events

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/pkg/limits"
)

// Bounds of all streams.
const (
	// MaxStreams is the number of streams of a replica, and MaxStreamsPerUser that of one user. A hidden page of the web UI has none.
	MaxStreams        = 2000
	MaxStreamsPerUser = 8
	// MaxStreamsPerTenant is the number of streams of all users whom one person may create, such as the ServiceAccounts of a namespace.
	MaxStreamsPerTenant = 256
)

// Subprotocol is that of the WebSockets.
const Subprotocol = "scanner-operator.events.v1"

// Errors of Acquire.
var (
	ErrTooManyOfUser   = fmt.Errorf("your user has %d streams of events open, which is the maximum: close one, or load again every 30 s instead", MaxStreamsPerUser)
	ErrTooManyOfTenant = fmt.Errorf("the ServiceAccounts of your namespace have %d streams of events open, which is the maximum: load again every 30 s instead",
		MaxStreamsPerTenant)
	ErrTooMany = fmt.Errorf("%d streams of events are open, which is the maximum: load again every 30 s instead", MaxStreams)
)

// Server serves streams of a log. All methods are safe for concurrent use.
type Server struct {
	Log *Log
	// Version is that of the operator, and Build identifies the document of the web UI.
	Version, Build string
	// Closing is closed when the server is about to end: the streams end then, and say so. May be nil.
	Closing <-chan struct{}

	// open are the streams of all, of tenants and of users.
	open limits.Quota
}

// all owns all streams.
const all = "all"

// Acquire takes a slot for a stream of a user of a tenant, or returns ErrTooManyOfUser, ErrTooManyOfTenant or ErrTooMany. The caller must call
// release once.
func (s *Server) Acquire(tenant, user string) (release func(), err error) {
	release, exceeded := s.open.Take(
		limits.Bound{Owner: "user " + user, Max: MaxStreamsPerUser}, limits.Bound{Owner: "tenant " + tenant, Max: MaxStreamsPerTenant},
		limits.Bound{Owner: all, Max: MaxStreams})
	if exceeded >= 0 {
		return nil, []error{ErrTooManyOfUser, ErrTooManyOfTenant, ErrTooMany}[exceeded]
	}
	return release, nil
}

// Open returns the number of streams that have a slot.
func (s *Server) Open() int { return s.open.Used(all) }

// Position returns the ID of the position after the last change. A client that loads data after it can begin a stream there.
func (s *Server) Position() string { return s.Log.idOf(s.Log.End()) }

// IsWebSocket reports whether a request asks for a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// Serve serves a stream until it ends: over a WebSocket if the request asks for one, and else as server-sent events. The caller has checked the
// origin of the request. An error means that nothing was sent but a refusal.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, stream Stream) error {
	hello := restv1.Event{Version: s.Version, Build: s.Build}
	if IsWebSocket(r) {
		return s.serveWebSocket(w, r, stream, hello)
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Accel-Buffering", "no") // nginx would collect the messages
	to := &eventStream{w: w, controller: http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	ctx, stop := s.untilClosing(r.Context())
	defer stop()
	stream.run(ctx, s.Log, to, hello)
	return nil
}

// untilClosing returns a context that ends when the server is about to end.
func (s *Server) untilClosing(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.Closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// eventStream sends server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
type eventStream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
}

func (e *eventStream) send(ctx context.Context, event restv1.Event, text []byte) error {
	// The stream outlasts the server's time for a response. Between two messages there is no deadline: over HTTP/2, one that passes ends the stream
	// although nothing is being written.
	deadline, _ := ctx.Deadline()
	if err := e.setDeadline(deadline); err != nil {
		return err
	}
	block := make([]byte, 0, len(text)+128)
	switch event.Type {
	case restv1.EventHello:
		block = fmt.Appendf(block, "retry: %d\n", retryAfter().Milliseconds())
	case restv1.EventBye:
		block = fmt.Appendf(block, "retry: %d\n", event.RetryAfterMs)
	}
	if event.ID != "" {
		block = fmt.Appendf(block, "id: %s\n", event.ID)
	}
	// The text is JSON without a line break.
	block = fmt.Appendf(block, "data: %s\n\n", text)
	if _, err := e.w.Write(block); err != nil {
		return err
	}
	if err := e.controller.Flush(); err != nil {
		return err
	}
	return e.setDeadline(time.Time{})
}

// setDeadline sets the deadline for writing, zero for none. A writer without a connection has no deadline.
func (e *eventStream) setDeadline(deadline time.Time) error {
	if err := e.controller.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request, stream Stream, hello restv1.Event) error {
	connection, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{Subprotocol},
		// The caller has checked the origin, in the same way as that of requests that write.
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled, // it would need more memory than all else of a stream
	})
	if err != nil {
		return err
	}
	defer func() { _ = connection.CloseNow() }()
	// Clients send nothing. The context ends with the connection.
	ctx, stop := s.untilClosing(connection.CloseRead(r.Context()))
	defer stop()
	go ping(ctx, connection)
	stream.run(ctx, s.Log, webSocket{connection}, hello)
	_ = connection.Close(websocket.StatusGoingAway, "")
	return nil
}

type webSocket struct{ *websocket.Conn }

func (c webSocket) send(ctx context.Context, _ restv1.Event, text []byte) error {
	return c.Write(ctx, websocket.MessageText, text)
}

// ping closes the connection of a client that is gone without having said so.
func ping(ctx context.Context, connection *websocket.Conn) {
	for {
		pause(ctx, keepAlive)
		if ctx.Err() != nil {
			return
		}
		pong, cancel := context.WithTimeout(ctx, writeTimeout)
		err := connection.Ping(pong)
		cancel()
		if err != nil {
			_ = connection.CloseNow()
			return
		}
	}
}
