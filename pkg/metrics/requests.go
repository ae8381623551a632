package metrics

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Requests counts what this process asks of other servers. Nil counts nothing.
type Requests struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewRequests registers the metrics; a nil registry registers nothing.
func NewRequests(registry prometheus.Registerer) *Requests {
	factory := promauto.With(registry)
	return &Requests{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_client_requests_total",
			Help: "Requests to other servers, by HTTP status; code is error where there was no answer, and other for a status that HTTP does not have.",
		}, []string{"server", "method", "code"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_client_request_duration_seconds",
			Help:    "Time until another server's answer began, or until it was given up.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300},
		}, []string{"server", "method"}),
	}
}

// Transport counts what goes by way of another one. The server is a kind of server, a constant of the program: hosts may
// come from users.
func (r *Requests) Transport(server string, next http.RoundTripper) http.RoundTripper {
	if r == nil {
		return next
	}
	return transport{requests: r, server: server, next: next}
}

// transport is one that is counted.
type transport struct {
	requests *Requests
	server   string
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := t.next.RoundTrip(request)
	code := codeOf(response, err)
	method := methodOf(request)
	t.requests.seconds.WithLabelValues(t.server, method).Observe(time.Since(began).Seconds())
	t.requests.requests.WithLabelValues(t.server, method, code).Inc()
	return response, err
}

// CloseIdleConnections is what http.Client asks a transport for, by this name.
func (t transport) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// methodOf is as net/http understands it.
func methodOf(request *http.Request) string { return cmp.Or(request.Method, http.MethodGet) }

// codeOf is an answer's HTTP status. Those that HTTP does not have are one: other servers, which users may choose, send what they like.
func codeOf(response *http.Response, err error) string {
	switch {
	case err != nil:
		return "error"
	case http.StatusText(response.StatusCode) == "":
		return "other"
	}
	return strconv.Itoa(response.StatusCode)
}
