package preflight

import (
	"fmt"
	"regexp"
	"strings"
)

// Account identifies a ServiceAccount.
type Account struct{ Namespace, Name string }

// Resources whose objects can be granted by name.
const (
	Secrets         = "secrets"
	ServiceAccounts = "serviceaccounts"
)

// GrantCommands returns one line of shell commands that let an account get these objects of a namespace and nothing else. The role and the
// binding of the same name must not exist yet. Names may be any text, since other people than the one who runs the commands choose some of
// them. The shell takes each name as one word.
func GrantCommands(account Account, namespace, role, resource string, names ...string) string {
	named := ""
	for _, name := range names {
		named += " --resource-name=" + quote(name)
	}
	return fmt.Sprintf("kubectl -n %[1]s create role %[2]s --verb=get --resource=%[3]s%[4]s && "+
		"kubectl -n %[1]s create rolebinding %[2]s --role=%[2]s --serviceaccount=%[5]s",
		quote(namespace), quote(role), resource, named, quote(account.Namespace+":"+account.Name))
}

// unquoted matches words that a shell takes literally without quotes.
var unquoted = regexp.MustCompile(`^[A-Za-z0-9.:/_-]+$`)

// quote quotes a text as one word for POSIX shells
// (https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_02_02).
func quote(text string) string {
	if unquoted.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
