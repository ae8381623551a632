package metrics

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Requests counts the requests of this process to other servers. A nil Requests counts nothing.
type Requests struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewRequests registers the metrics. A nil registry registers nothing.
func NewRequests(registry prometheus.Registerer) *Requests {
	factory := promauto.With(registry)
	return &Requests{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "scanner_operator_client_requests_total",
			Help: "Requests to other servers, by HTTP status; code is error without an answer, and other for a status that HTTP does not define.",
		}, []string{"server", "method", "code"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "scanner_operator_client_request_duration_seconds",
			Help:    "Time until another server's answer began, or until the request was given up.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300},
		}, []string{"server", "method"}),
	}
}

// Transport returns a RoundTripper that counts requests and passes them to next. server is a kind of server and must be a constant of the
// program, since users may choose hosts.
func (r *Requests) Transport(server string, next http.RoundTripper) http.RoundTripper {
	if r == nil {
		return next
	}
	return transport{requests: r, server: server, next: next}
}

// transport counts the requests that it passes on.
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

// CloseIdleConnections is the method that http.Client.CloseIdleConnections calls on a transport.
func (t transport) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// methodOf returns the method as net/http understands it: an empty one is GET.
func methodOf(request *http.Request) string { return cmp.Or(request.Method, http.MethodGet) }

// codeOf returns the label value for a response. Statuses that HTTP does not define have one value together, since other servers, which
// users may choose, can send any number.
func codeOf(response *http.Response, err error) string {
	switch {
	case err != nil:
		return "error"
	case http.StatusText(response.StatusCode) == "":
		return "other"
	}
	return strconv.Itoa(response.StatusCode)
}
