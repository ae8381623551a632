package restapi

import (
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// maxRequestsPerUser is the maximum number of concurrent requests of one user. A page of the web UI sends at most four.
const maxRequestsPerUser = 32

// maxRequestsPerTenant is the maximum number of concurrent requests of one tenant, as tenantOf defines it.
const maxRequestsPerTenant = 4 * maxRequestsPerUser

// userSlots bounds the concurrent requests of each user and of each tenant, over however many connections they come.
type userSlots struct {
	mu   sync.Mutex
	used map[slotOwner]int
}

// slotOwner is a tenant, or one of its users.
type slotOwner struct{ tenant, user string }

// acquire takes a slot, which its caller must release. It refuses a user with maxRequestsPerUser requests at once, and a tenant with
// maxRequestsPerTenant.
func (s *userSlots) acquire(user authenticationv1.UserInfo) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == nil {
		s.used = map[slotOwner]int{}
	}
	tenant := tenantOf(user.Username)
	owners := []slotOwner{{tenant, user.Username}, {tenant: tenant}}
	switch {
	case s.used[owners[0]] >= maxRequestsPerUser:
		return nil, unavailable("your user has too many requests at once; retry later")
	case s.used[owners[1]] >= maxRequestsPerTenant:
		return nil, unavailable(tenant + " have too many requests at once; retry later")
	}
	for _, o := range owners {
		s.used[o]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, o := range owners {
			if s.used[o]--; s.used[o] == 0 {
				delete(s.used, o)
			}
		}
	}, nil
}
