package scale

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// request is one line of the API server's audit log, as far as it is read here.
type request struct {
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// what is asked of which resource: "patch pods", "patch imagescans/status".
func (r request) what() string {
	what := r.Verb + " " + r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		what += "/" + r.ObjectRef.Subresource
	}
	return what
}

// routine requests go on whatever happens in the cluster: the lease that says who leads.
func (r request) routine() bool { return r.ObjectRef.Resource == "leases" }

// auditLog reads the API server's own record of who asked what, which misses nothing that a client forgets to count.
type auditLog struct{ file string }

// between lists the manager's requests that the server received in a span of time, without the routine.
func (a *auditLog) between(from, to time.Time) ([]request, error) {
	file, err := os.Open(a.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var requests []request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // the last line may be half-written
		}
		if !r.routine() && !r.RequestReceivedTimestamp.Before(from) && r.RequestReceivedTimestamp.Before(to) {
			requests = append(requests, r)
		}
	}
	return requests, lines.Err()
}

// last is when the last of them was received.
func last(requests []request) time.Time {
	var latest time.Time
	for _, r := range requests {
		if r.RequestReceivedTimestamp.After(latest) {
			latest = r.RequestReceivedTimestamp
		}
	}
	return latest
}

// byVerb counts requests.
func byVerb(requests []request) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		counts[r.what()]++
	}
	return counts
}

// perPod writes counts as requests per pod, most first: "patch pods 1.00, create imagescans 0.50".
func perPod(counts map[string]int, pods int) string {
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	var all []string
	for _, what := range order {
		all = append(all, fmt.Sprintf("%s %.3f", what, float64(counts[what])/float64(pods)))
	}
	return strings.Join(all, ", ")
}
