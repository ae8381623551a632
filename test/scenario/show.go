package scenario

import (
	"context"
	"fmt"
	"strings"
)

// Show prints the results of the demo as a user sees them.
func (e *Environment) Show(ctx context.Context) error {
	text, err := e.Kubectl(ctx, "get", "scanners,imagescans,vulnerabilityexceptions", "--all-namespaces")
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "\n$ kubectl get scanners,imagescans,vulnerabilityexceptions -A\n%s\nIn Slack:\n", text)
	for _, namespace := range e.namespaces() {
		messages, err := e.Messages(ctx, namespace)
		if err != nil {
			return err
		}
		for _, message := range messages {
			fmt.Fprintf(e.Out, "\n  ┌─ to the channel of %s, %s\n", namespace, message.Time.Format("15:04:05"))
			for line := range strings.SplitSeq(strings.TrimSpace(message.Text), "\n") {
				fmt.Fprintln(e.Out, "  │", line)
			}
		}
	}
	fmt.Fprintln(e.Out)
	return nil
}

// diagnoses are the most useful kubectl commands for finding the cause of a failure.
var diagnoses = [][]string{
	{"get", "pods", "--all-namespaces", "--output", "wide"},
	{"get", "scanners,imagescans,vulnerabilityexceptions,clustervulnerabilityexceptions", "--all-namespaces", "--output", "wide"},
	{"get", "jobs", "--namespace", SystemNamespace, "--output", "wide"},
	{"describe", "pods", "--namespace", SystemNamespace},
	{"describe", "scanners", "--all-namespaces"},
	{"logs", "--namespace", SystemNamespace, ManagerDeployment, "--all-containers", "--tail=150"},
	{"logs", "--namespace", SystemNamespace, ManagerDeployment, "--all-containers", "--previous", "--tail=50"},
	{"logs", "--namespace", SystemNamespace, NotifierDeployment, "--tail=80"},
	{"logs", "--namespace", SystemNamespace, "--selector", "app.kubernetes.io/component=match", "--tail=50", "--prefix"},
	{"logs", "--namespace", SystemNamespace, "--selector", "app.kubernetes.io/component=catalog", "--tail=50", "--prefix"},
	{"logs", "--namespace", ClairNamespace, "deployment/clair", "--tail=80"},
	{"logs", "--namespace", ClairNamespace, "deployment/clair-database", "--tail=20"},
	{"get", "events", "--all-namespaces", "--sort-by", ".metadata.creationTimestamp"},
}

// Diagnose prints the output of the diagnoses after a failed step.
func (e *Environment) Diagnose(ctx context.Context) {
	for _, command := range diagnoses {
		text, err := e.Kubectl(ctx, command...)
		if err != nil {
			text += "(" + strings.TrimSpace(err.Error()) + ")\n"
		}
		fmt.Fprintf(e.Out, "\n=== kubectl %s\n%s", strings.Join(command, " "), text)
	}
}
