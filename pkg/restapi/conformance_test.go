package restapi

import (
	"bytes"
	"encoding/csv"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
)

// conformanceTransport passes requests on and checks each response against the OpenAPI document, field by field.
type conformanceTransport struct {
	t    testing.TB
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *conformanceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err != nil || r.URL.Path == PathDocument {
		return response, err
	}
	responses := openAPIContract().responses(r.Method, r.URL.Path)
	answer, found := responses[strconv.Itoa(response.StatusCode)]
	if !found {
		answer, found = responses["default"]
	}
	if !found {
		c.t.Errorf("%s %s: the document does not know the status %d", r.Method, r.URL, response.StatusCode)
	}
	mediaType, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	content, found := answer[mediaType]
	hasNoBody := slices.Contains([]int{http.StatusNotModified, http.StatusNoContent, http.StatusAccepted}, response.StatusCode)
	if !found && !hasNoBody {
		c.t.Errorf("%s %s: status %d: the document does not know the content type %q", r.Method, r.URL, response.StatusCode, mediaType)
	}
	if mediaType == "text/event-stream" { // it has no end
		return response, nil
	}
	if content == nil || response.Header.Get("Content-Encoding") != "" {
		return response, nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	if mediaType == "text/csv" {
		if _, err := csv.NewReader(bytes.NewReader(body)).ReadAll(); err != nil || !utf8.Valid(body) {
			c.t.Errorf("%s %s: the answer is not CSV in UTF-8: %v\n%s", r.Method, r.URL, err, body)
		}
		return response, nil
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		c.t.Errorf("%s %s: the answer is not JSON: %v", r.Method, r.URL, err)
		return response, nil
	}
	if err := content.Validate(parsed); err != nil {
		c.t.Errorf("%s %s: the answer is not what the document says: %v\n%s", r.Method, r.URL, err, body)
	}
	return response, nil
}

// schemasOf holds the schemas of a response by content type.
type schemasOf map[string]*jsonschema.Schema

type contract struct {
	routes   []contractRoute
	anywhere map[string]schemasOf
}

type contractRoute struct {
	method    string
	path      *regexp.Regexp
	responses map[string]schemasOf
}

func (c *contract) responses(method, path string) map[string]schemasOf {
	for _, route := range c.routes {
		if route.method == method && route.path.MatchString(path) {
			return route.responses
		}
	}
	return c.anywhere
}

const documentURL = "https://example.com/openapi.json"

// openAPIContract parses the document once. Fields that the document does not have are not allowed in a response.
var openAPIContract = sync.OnceValue(func() *contract {
	var document map[string]any
	if err := yaml.Unmarshal(restv1.Document, &document); err != nil {
		panic(err)
	}
	for _, schema := range at(document, "components", "schemas") {
		if o := schema.(map[string]any); o["type"] == "object" {
			o["additionalProperties"] = false
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, document); err != nil {
		panic(err)
	}
	problem := map[string]schemasOf{"default": {"application/problem+json": compiler.MustCompile(documentURL + "#/components/schemas/Problem")}}
	made := &contract{anywhere: problem}
	for path, methods := range at(document, "paths") {
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`) + "$")
		for method := range methods.(map[string]any) {
			responses := map[string]schemasOf{"default": problem["default"]}
			for status, response := range at(methods.(map[string]any), method, "responses") {
				if status == "default" {
					continue
				}
				responses[status] = schemasOf{}
				answer, where := response.(map[string]any), "#/paths/"+pointer(path)+"/"+method+"/responses/"+status
				if shared, isRef := answer["$ref"].(string); isRef {
					answer, where = at(document, strings.Split(strings.TrimPrefix(shared, "#/"), "/")...), shared
				}
				for mediaType := range at(answer, "content") {
					responses[status][mediaType] = compiler.MustCompile(documentURL + where + "/content/" + pointer(mediaType) + "/schema")
				}
			}
			made.routes = append(made.routes, contractRoute{strings.ToUpper(method), pattern, responses})
		}
	}
	return made
})

func at(o map[string]any, path ...string) map[string]any {
	for _, name := range path {
		o, _ = o[name].(map[string]any)
	}
	return o
}

// pointer escapes a name for a JSON pointer in a URL's fragment.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B").Replace(name)
}
