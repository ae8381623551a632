package metrics

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// counterValues returns the values of a counter, or the counts of a histogram, by their labels.
func counterValues(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			values[labelsOf(metric)] = metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func labelsOf(metric *dto.Metric) (text string) {
	for _, label := range metric.GetLabel() {
		text += label.GetName() + "=" + label.GetValue() + " "
	}
	return text
}

// TestLoops: each run is counted once, with its result, and its error is returned.
func TestLoops(t *testing.T) {
	registry := prometheus.NewRegistry()
	loops, wrong := NewLoops(registry), errors.New("wrong")
	for _, err := range []error{nil, wrong, nil} {
		if got := loops.Run("sweep", func() error { return err }); !errors.Is(got, err) {
			t.Errorf("the run returned %v, want %v", got, err)
		}
	}
	want := map[string]float64{"loop=sweep result=ok ": 2, "loop=sweep result=error ": 1}
	if diff := cmp.Diff(want, counterValues(t, registry, "scanner_operator_loop_runs_total")); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	_ = loops.Run("jobs", func() error { return nil })
	if failed, there := counterValues(t, registry, "scanner_operator_loop_runs_total")["loop=jobs result=error "]; failed != 0 || !there {
		t.Errorf("failed runs of a loop that works: %v (is there: %t), want a 0 from which the first failure can be seen", failed, there)
	}
	if got := counterValues(t, registry, "scanner_operator_loop_run_duration_seconds")["loop=sweep "]; got != 3 {
		t.Errorf("%v runs were timed, want 3", got)
	}
	var none *Loops
	if err := none.Run("sweep", func() error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("where nothing is counted the run returned %v, want %v", err, wrong)
	}
}

// TestCluster: a cluster with a name has a metric with it, and one without a name has none.
func TestCluster(t *testing.T) {
	for name, want := range map[string]int{"": 0, "prod-eu": 1} {
		registry := prometheus.NewRegistry()
		RegisterCluster(registry, name)
		families, err := registry.Gather()
		if err != nil || len(families) != want {
			t.Errorf("cluster %q: metrics %v, error %v, want %d", name, families, err, want)
		}
		if want == 1 && labelsOf(families[0].GetMetric()[0]) != "name="+name+" " {
			t.Errorf("cluster %q: metric %v, want its name", name, families[0])
		}
	}
}

// TestRequests: requests are counted by the response's status, and those without a response too. A server cannot create label values.
func TestRequests(t *testing.T) {
	answers := []int{http.StatusTooManyRequests, http.StatusTooManyRequests, 499, 799}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	address := server.URL
	registry := prometheus.NewRegistry()
	client := &http.Client{Transport: NewRequests(registry).Transport("registry", http.DefaultTransport)}
	for range len(answers) {
		response, err := client.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	server.Close()
	if _, err := client.Get(address); err == nil {
		t.Fatal("a server that is closed answers")
	}
	want := map[string]float64{"code=429 method=GET server=registry ": 2, "code=other method=GET server=registry ": 2, "code=error method=GET server=registry ": 1}
	if diff := cmp.Diff(want, counterValues(t, registry, "scanner_operator_client_requests_total")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := counterValues(t, registry, "scanner_operator_client_request_duration_seconds")["method=GET server=registry "]; got != 5 {
		t.Errorf("%v requests were timed, want 5", got)
	}
}
