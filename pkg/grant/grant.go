// Package grant tells people how to let the operator read what it may not read yet.
package grant

import (
	"fmt"
	"regexp"
	"strings"
)

// Account is a ServiceAccount.
type Account struct{ Namespace, Name string }

// Resources whose objects may be granted by name.
const (
	Secrets         = "secrets"
	ServiceAccounts = "serviceaccounts"
)

// Commands are what to run, in one line, so that an account may read these objects of a namespace and nothing else. The
// role, and the binding of the same name, must not be there yet. Names may be any text, since others than the reader
// choose some of them: whatever it is, the shell takes it for a name.
func Commands(account Account, namespace, role, resource string, names ...string) string {
	named := ""
	for _, name := range names {
		named += " --resource-name=" + quote(name)
	}
	return fmt.Sprintf("kubectl -n %[1]s create role %[2]s --verb=get --resource=%[3]s%[4]s && "+
		"kubectl -n %[1]s create rolebinding %[2]s --role=%[2]s --serviceaccount=%[5]s",
		quote(namespace), quote(role), resource, named, quote(account.Namespace+":"+account.Name))
}

// plain is a word that shells take as it is.
var plain = regexp.MustCompile(`^[A-Za-z0-9.:/_-]+$`)

// quote makes one word of a text for POSIX shells (https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_02_02).
func quote(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
