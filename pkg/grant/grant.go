// Package grant tells people how to let the operator read what it may not read yet.
package grant

import "fmt"

// Account is a ServiceAccount.
type Account struct{ Namespace, Name string }

// Commands are what to run, in one line, so that an account may read these Secrets of a namespace and nothing else. The
// role, and the binding of the same name, must not be there yet.
func Commands(account Account, namespace, role string, secrets ...string) string {
	resources := ""
	for _, name := range secrets {
		resources += " --resource-name=" + name
	}
	return fmt.Sprintf("kubectl -n %[1]s create role %[3]s --verb=get --resource=secrets%[2]s && "+
		"kubectl -n %[1]s create rolebinding %[3]s --role=%[3]s --serviceaccount=%[4]s:%[5]s",
		namespace, resources, role, account.Namespace, account.Name)
}
