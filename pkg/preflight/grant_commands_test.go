package preflight

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCommands: kubectl runs twice, with each name as one word, whatever the name contains.
func TestCommands(t *testing.T) {
	for what, secret := range map[string]string{
		"a name":       "regcred",
		"a command":    "x;echo evil|sh;# ",
		"substituted":  "$(echo evil)`echo evil`$HOME",
		"quotes":       `it's "x" '; echo evil; '`,
		"line breaks":  "x\necho evil\n",
		"a comment":    "#",
		"an empty one": "",
	} {
		t.Run(what, func(t *testing.T) {
			commands := GrantCommands(Account{Namespace: "scanner-operator-system", Name: "manager"}, "shop", "manager-"+secret, Secrets, "a", secret)
			// A shell function replaces kubectl and prints each word in brackets.
			out, err := exec.CommandContext(t.Context(), "sh", "-c", `kubectl() { printf '<%s>' "$@"; echo .; }; `+commands).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", commands, err, out)
			}
			want := words("-n", "shop", "create", "role", "manager-"+secret, "--verb=get", "--resource=secrets", "--resource-name=a", "--resource-name="+secret) +
				words("-n", "shop", "create", "rolebinding", "manager-"+secret, "--role=manager-"+secret, "--serviceaccount=scanner-operator-system:manager")
			if diff := cmp.Diff(want, string(out)); diff != "" {
				t.Errorf("%s runs (-want +got):\n%s", commands, diff)
			}
		})
	}
}

func words(all ...string) string { return "<" + strings.Join(all, "><") + ">.\n" }
