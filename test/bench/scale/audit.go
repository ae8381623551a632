package scale

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// request is one line of the API server's audit log, with the fields that are read here.
type request struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
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
type auditLog struct {
	file string
	// requests are those before offset.
	requests []request
	offset   int64
}

// between returns the requests of a user that the server received in a period, without routine requests.
func (a *auditLog) between(user string, from, to time.Time) ([]request, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	var requests []request
	for _, r := range a.requests {
		if r.User.Username == user && !r.isRoutine() && !r.RequestReceivedTimestamp.Before(from) && r.RequestReceivedTimestamp.Before(to) {
			requests = append(requests, r)
		}
	}
	return requests, nil
}

// read reads the lines that have been added since the last call.
func (a *auditLog) read() error {
	file, err := os.Open(a.file)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the last line may be incomplete
		}
		if err != nil {
			return err
		}
		a.offset += int64(len(line))
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		a.requests = append(a.requests, r)
	}
}

// last returns the time when the last of the requests was received; since, if there is none.
func last(requests []request, since time.Time) time.Time {
	latest := since
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
