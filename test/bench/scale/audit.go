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

// request is one line of the API server's audit log, with the fields that are read here.
type request struct {
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// what returns the verb and the resource: "patch pods", "patch imagescans/status".
func (r request) what() string {
	what := r.Verb + " " + r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		what += "/" + r.ObjectRef.Subresource
	}
	return what
}

// isRoutine reports whether a request is independent of the work: renewals of the leader election's lease.
func (r request) isRoutine() bool { return r.ObjectRef.Resource == "leases" }

// auditLog reads the API server's audit log, which is complete, unlike the counters of a client.
type auditLog struct{ file string }

// between returns the manager's requests that the server received in a period, without routine requests.
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
			continue // the last line may be incomplete
		}
		if !r.isRoutine() && !r.RequestReceivedTimestamp.Before(from) && r.RequestReceivedTimestamp.Before(to) {
			requests = append(requests, r)
		}
	}
	return requests, lines.Err()
}

// last returns the time when the last of the requests was received.
func last(requests []request) time.Time {
	var latest time.Time
	for _, r := range requests {
		if r.RequestReceivedTimestamp.After(latest) {
			latest = r.RequestReceivedTimestamp
		}
	}
	return latest
}

// byVerb returns the number of requests by verb and resource.
func byVerb(requests []request) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		counts[r.what()]++
	}
	return counts
}

// perPod formats counts as requests per pod, highest first: "patch pods 1.00, create imagescans 0.50".
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
