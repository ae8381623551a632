package scenario

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Kubectl runs kubectl and returns its standard output.
func (e *Environment) Kubectl(ctx context.Context, args ...string) (string, error) {
	return e.kubectl(ctx, "", args...)
}

func (e *Environment) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "kubectl", args...)
	var out, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &stderr
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out.String(), nil
}

// Apply renders a template of this package and applies it.
func (e *Environment) Apply(ctx context.Context, file string, values any) error {
	text, err := render("manifests/"+file, values)
	if err != nil {
		return err
	}
	return e.ApplyText(ctx, text)
}

// ApplyText applies YAML documents.
func (e *Environment) ApplyText(ctx context.Context, text string) error {
	_, err := e.kubectl(ctx, text, "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// DeleteText deletes the objects of YAML documents. Missing objects are ignored.
func (e *Environment) DeleteText(ctx context.Context, text string) error {
	_, err := e.kubectl(ctx, text, "delete", "--ignore-not-found", "-f", "-")
	return err
}

// WaitForRollout waits until the rollout of a namespace's workloads ("deployment/web") is complete.
func (e *Environment) WaitForRollout(ctx context.Context, namespace string, workloads ...string) error {
	for _, workload := range workloads {
		if _, err := e.Kubectl(ctx, "--namespace", namespace, "rollout", "status", workload, "--timeout=120s"); err != nil {
			return err
		}
	}
	return nil
}

// MakeNamespace creates a namespace that Remove deletes.
func (e *Environment) MakeNamespace(ctx context.Context, name string) error {
	return e.Apply(ctx, "namespace.yaml", map[string]string{"Name": name, "Label": Label})
}
