package restapi

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// rules holds what the OpenAPI document defines for parameters, by route ("GET /api/v1/scanners") and name. The generated code parses
// parameters. The rules check their bounds, patterns and allowed values.
type rules map[string]route

type route struct {
	operation  string
	parameters map[string]parameter
}

// The part of an OpenAPI 3.0 document that rules are made from.
type (
	document struct {
		Paths      map[string]map[string]operation `json:"paths"`
		Components struct {
			Parameters map[string]parameter `json:"parameters"`
			Schemas    map[string]schema    `json:"schemas"`
		} `json:"components"`
	}
	operation struct {
		OperationID string      `json:"operationId"`
		Parameters  []parameter `json:"parameters"`
	}
	parameter struct {
		Ref    string `json:"$ref"`
		Name   string `json:"name"`
		In     string `json:"in"`
		Schema schema `json:"schema"`
	}
	schema struct {
		Ref       string   `json:"$ref"`
		Type      string   `json:"type"`
		Enum      []string `json:"enum"`
		Pattern   string   `json:"pattern"`
		MinLength int      `json:"minLength"`
		MaxLength int      `json:"maxLength"`
		Minimum   int      `json:"minimum"`
		Maximum   int      `json:"maximum"`
		MaxItems  int      `json:"maxItems"`
		Items     *schema  `json:"items"`

		pattern *regexp.Regexp
	}
)

// parseRules parses the document. A parameter without a bound is an error, since only the document bounds parameters.
func parseRules(openAPI []byte) (rules, error) {
	var doc document
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	read := rules{}
	for path, methods := range doc.Paths {
		for method, operation := range methods {
			parameters := map[string]parameter{}
			for _, p := range operation.Parameters {
				if name, isRef := strings.CutPrefix(p.Ref, "#/components/parameters/"); isRef {
					p = doc.Components.Parameters[name]
				}
				if err := doc.resolve(&p.Schema); err != nil {
					return nil, fmt.Errorf("OpenAPI document: %s %s: parameter %q: %w", method, path, p.Name, err)
				}
				parameters[p.Name] = p
			}
			read[strings.ToUpper(method)+" "+path] = route{operation: operation.OperationID, parameters: parameters}
		}
	}
	return read, nil
}

// resolve follows references and compiles patterns. A schema without a bound is an error.
func (d *document) resolve(s *schema) (err error) {
	if name, isRef := strings.CutPrefix(s.Ref, "#/components/schemas/"); isRef {
		*s = d.Components.Schemas[name]
	}
	switch {
	case s.Type == "boolean" || s.Type == "integer" && s.Maximum > 0 || len(s.Enum) > 0:
	case s.Type == "string" && s.MaxLength > 0:
		s.pattern, err = regexp.Compile(s.Pattern)
	case s.Type == "array" && s.MaxItems > 0 && s.Items != nil:
		items := *s.Items
		s.Items = &items
		err = d.resolve(s.Items)
	default:
		err = fmt.Errorf("it has no bound that can be checked")
	}
	return err
}

// check refuses a request with a parameter that is unknown, repeated, or not as the document defines it.
func (r route) check(request *http.Request) error {
	query, err := url.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return invalidQuery()
	}
	for name, values := range query {
		p, found := r.parameters[name]
		if !found || p.In != "query" {
			return invalidParameter(truncate(name), "there is no such parameter here; there are %s", strings.Join(r.names("query"), ", "))
		}
		if len(values) != 1 {
			return invalidParameter(name, "it is given %d times", len(values))
		}
		if err := p.Schema.check(name, values[0]); err != nil {
			return err
		}
	}
	for name, p := range r.parameters {
		var value string
		switch p.In {
		case "path":
			value = request.PathValue(name)
		case "header":
			value = request.Header.Get(name)
			if value == "" {
				continue
			}
		default:
			continue
		}
		if err := p.Schema.check(name, value); err != nil {
			return err
		}
	}
	return nil
}

// invalidQuery is the refusal of a query that url.ParseQuery cannot parse. The error of url.ParseQuery would repeat the query.
func invalidQuery() error { return invalidParameter("query", "it is not encoded as a query must be") }

// names lists the parameters in the path, the query or the header, for a caller that mistyped one.
func (r route) names(in string) []string {
	var names []string
	for name, p := range r.parameters {
		if p.In == in {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if names == nil {
		names = []string{"none"}
	}
	return names
}

// check refuses a value that the document does not allow, and names what is allowed. An empty value is checked as well: a filter without a
// value is more likely a mistake in a script than a request for everything.
func (s *schema) check(name, value string) error {
	switch {
	case len(s.Enum) > 0:
		if !slices.Contains(s.Enum, value) {
			return invalidParameter(name, "%q is none of %s", truncate(value), strings.Join(s.Enum, ", "))
		}
	case s.Type == "boolean":
		if value != "true" && value != "false" {
			return invalidParameter(name, "must be true or false")
		}
	case s.Type == "integer":
		if n, err := strconv.Atoi(value); err != nil || n < s.Minimum || n > s.Maximum {
			return invalidParameter(name, "must be a whole number from %d to %d", s.Minimum, s.Maximum)
		}
	case s.Type == "array":
		return s.checkItems(name, value)
	default:
		return s.checkText(name, value)
	}
	return nil
}

// checkItems checks a list in one parameter (style form, not exploded).
func (s *schema) checkItems(name, value string) error {
	items := strings.Split(value, ",")
	if len(items) > s.MaxItems {
		return invalidParameter(name, "at most %d, separated by commas", s.MaxItems)
	}
	for _, item := range items {
		if err := s.Items.check(name, item); err != nil {
			return err
		}
	}
	return nil
}

// checkText checks a text. It counts characters, as JSON Schema does. It refuses text that is not UTF-8, since nothing in SQLite would
// equal it.
func (s *schema) checkText(name, value string) error {
	switch n := utf8.RuneCountInString(value); {
	case !utf8.ValidString(value):
		return invalidParameter(name, "must be UTF-8")
	case n < s.MinLength:
		return invalidParameter(name, "must have at least %d characters", s.MinLength)
	case n > s.MaxLength:
		return invalidParameter(name, "must have at most %d characters", s.MaxLength)
	case !s.pattern.MatchString(value):
		return invalidParameter(name, "%q does not match %s", truncate(value), s.pattern)
	}
	return nil
}

// truncate cuts a caller's text after 64 characters, for a response or a log line.
func truncate(value string) string {
	if characters := []rune(value); len(characters) > 64 {
		return string(characters[:64]) + "…"
	}
	return value
}
