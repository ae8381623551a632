// Command crdlint checks generated CustomResourceDefinitions against the Kubernetes API conventions that matter most to users: every
// field has a description, and every field of spec has a bound.
//
//	crdlint config/crd/bases/*.yaml
//
// It checks the schema that the API server enforces, not the Go types, so a marker without effect does not pass. It must not know the
// project's kinds.
package main

import (
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	problems, err := checkFiles(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "crdlint:", err)
		os.Exit(2)
	}
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		fmt.Printf("crdlint: %d problems\n", len(problems))
		os.Exit(1)
	}
	fmt.Printf("crdlint: %d files are as they should be\n", len(os.Args)-1)
}

func checkFiles(files []string) ([]string, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("give the files to check: crdlint config/crd/bases/*.yaml")
	}
	var problems []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		problems = append(problems, check(crd)...)
	}
	return problems, nil
}
