package main

import (
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/scanner-operator/scanner-operator/test/ledger"
	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

// answerMode is the way in which one request is answered.
type answerMode int

const (
	// fine accepts the message and answers 200.
	fine answerMode = iota
	// limited answers 429 and failed answers 500. Both reject the message.
	limited
	failed
	// acceptedSilently accepts the message and does not answer. ignored neither accepts it nor answers.
	acceptedSilently
	ignored
)

// answerShares are the shares of the modes in percent. The rest is fine.
var answerShares = []struct {
	mode  answerMode
	share int
}{{limited, 10}, {failed, 8}, {acceptedSilently, 4}, {ignored, 3}}

// Slack waits a random time before it accepts a message, and again before it answers, up to these maximums. The average of 0.3 s in
// total is that of the real Slack.
const (
	longestBefore = 200 * time.Millisecond
	longestAfter  = 400 * time.Millisecond
)

// maxMessage is larger than any message, in bytes.
const maxMessage = 1 << 20

// counts are the numbers of requests by answer mode.
type counts struct{ limited, failed, acceptedSilently, ignored int }

// slack is a stand-in for Slack that chooses an answer mode for each message.
type slack struct {
	server *httptest.Server
	// arrivals receives an entry when a message has arrived since the last receive.
	arrivals chan struct{}

	mu       sync.Mutex
	draws    *rand.Rand
	healthy  bool
	counts   counts
	messages []*ledger.Message
}

func newSlack(draws *rand.Rand) *slack {
	s := &slack{draws: draws, arrivals: make(chan struct{}, 1)}
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(s.post))
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // discards errors of clients that were killed
	s.server.StartTLS()
	return s
}

func (s *slack) close() { s.server.CloseClientConnections(); s.server.Close() }

// becomeHealthy makes Slack accept and answer every message from now on.
func (s *slack) becomeHealthy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.healthy = true
}

// draw decides how a message is answered.
func (s *slack) draw() (m answerMode, before, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after = time.Duration(s.draws.Int64N(int64(longestBefore))), time.Duration(s.draws.Int64N(int64(longestAfter)))
	roll := s.draws.IntN(100)
	if s.healthy {
		return fine, before, after
	}
	for _, each := range answerShares {
		if roll -= each.share; roll < 0 {
			return each.mode, before, after
		}
	}
	return fine, before, after
}

// post handles one message.
func (s *slack) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if err != nil {
		return // the sender was killed meanwhile
	}
	select {
	case s.arrivals <- struct{}{}:
	default:
	}
	m, before, after := s.draw()
	if pause(r.Context(), before) != nil {
		return
	}
	switch m {
	case fine:
		reported := s.accept(r.URL.Path, body)
		// The message is accepted even if the sender no longer waits for the answer.
		_ = pause(r.Context(), after)
		s.recordAnswer(reported)
		_, _ = io.WriteString(w, "ok")
	case limited:
		s.addCount(func(c *counts) { c.limited++ })
		w.Header().Set("Retry-After", "1")
		http.Error(w, "rate_limited", http.StatusTooManyRequests)
	case failed:
		s.addCount(func(c *counts) { c.failed++ })
		http.Error(w, "rollup_error", http.StatusInternalServerError)
	case acceptedSilently:
		s.addCount(func(c *counts) { c.acceptedSilently++ })
		s.accept(r.URL.Path, body)
		<-r.Context().Done()
	case ignored:
		s.addCount(func(c *counts) { c.ignored++ })
		<-r.Context().Done()
	}
}

func (s *slack) addCount(change func(*counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.counts)
}

// accept stores an accepted message.
func (s *slack) accept(webhook string, body []byte) *ledger.Message {
	message := ledger.NewMessage(webhook, standin.Message{Payload: body, Text: standin.Readable(body), Violations: standin.Check(body)})
	s.mu.Lock()
	defer s.mu.Unlock()
	message.Accepted = time.Now()
	s.messages = append(s.messages, &message)
	return &message
}

func (s *slack) recordAnswer(reported *ledger.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported.Answered = time.Now()
}

// accepted returns the messages so far, in the order of acceptance.
func (s *slack) accepted() []ledger.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]ledger.Message, len(s.messages))
	for i, reported := range s.messages {
		all[i] = *reported
	}
	return all
}

func (s *slack) lastAccepted() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.messages) == 0 {
		return time.Time{}
	}
	return s.messages[len(s.messages)-1].Accepted
}

func (s *slack) count() counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}
