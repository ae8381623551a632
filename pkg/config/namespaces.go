package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxNamespaces bounds a list of namespaces. Each watched namespace needs watches of its own. A cluster that needs more must watch all
// namespaces at once.
const maxNamespaces = 100

// ParseNamespaces parses a flag's list of namespaces, separated by commas, and sorts it. An empty list means all namespaces. A list with an
// empty name is an error, since the API would take that name for all namespaces.
func ParseNamespaces(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var errs []error
	names := strings.Split(text, ",")
	if len(names) > maxNamespaces {
		return nil, fmt.Errorf("%d namespaces are more than %d", len(names), maxNamespaces)
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if problems := validation.IsDNS1123Label(names[i]); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%q is no name of a namespace: %s", names[i], problems[0]))
		}
		if slices.Contains(names[:i], names[i]) {
			errs = append(errs, fmt.Errorf("%q stands there twice", names[i]))
		}
	}
	slices.Sort(names)
	return names, errors.Join(errs...)
}
