package restapi

import (
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// maxRequestsPerUser is the maximum number of concurrent requests of one user. A page of the web UI sends at most four.
const maxRequestsPerUser = 32

// userSlots bounds the concurrent requests of each user, over however many connections they come.
type userSlots struct {
	mu   sync.Mutex
	used map[string]int // by the user's name
}

// acquire takes a slot, which its caller must release. It refuses a user with maxRequestsPerUser requests at once.
func (s *userSlots) acquire(user authenticationv1.UserInfo) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used = map[string]int{}
	}
	if s.used[user.Username] >= maxRequestsPerUser {
		return nil, unavailable("your user has too many requests at once; retry later")
	}
	s.used[user.Username]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.used[user.Username]--; s.used[user.Username] == 0 {
			delete(s.used, user.Username)
		}
	}, nil
}
