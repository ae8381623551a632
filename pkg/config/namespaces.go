package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxNamespaces bounds a list of namespaces: each that is watched has watches of its own, for which a cluster with more of them
// needs all namespaces to be watched at once.
const maxNamespaces = 100

// ParseNamespaces reads a flag's list of namespaces: names with commas between them, which it sorts. None means all namespaces. A
// list with an empty name is wrong: the API would take that one for all of them.
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
