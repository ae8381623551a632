// Package kubeauth finds out by the Kubernetes API who sent a request, and what that user may do. It caches the answers, and shares the requests to
// the API server: those about unknown tokens by address, and all others by tenant. So neither invented tokens nor the requests of one namespace
// delay others. It keeps no token, only its hash.
package kubeauth

import "strings"

const serviceAccountPrefix = "system:serviceaccount:"

// ServiceAccountNamespace returns the namespace of a ServiceAccount's user name; found is false for all other users.
func ServiceAccountNamespace(user string) (namespace string, found bool) {
	account, isAccount := strings.CutPrefix(user, serviceAccountPrefix)
	namespace, _, named := strings.Cut(account, ":")
	return namespace, isAccount && named
}

// TenantOf returns what counts as one caller: a user, or all ServiceAccounts of a namespace, since whoever may create one may create many. The text is
// also for messages.
func TenantOf(user string) string {
	if namespace, found := ServiceAccountNamespace(user); found {
		return "the ServiceAccounts of the namespace " + namespace
	}
	return user
}
