package main

import (
	"os"
	"strings"
	"testing"
)

// TestTypes: required and optional fields, references, lists, enumerations, parameters and bodies become types. Downloads do not.
func TestTypes(t *testing.T) {
	got, err := typesOf([]byte(`
paths:
  /things/{name}:
    get:
      parameters:
      - {$ref: '#/components/parameters/name'}
      - {name: limit, in: query, schema: {type: integer}}
      responses: {"200": {content: {application/json: {schema: {$ref: '#/components/schemas/Thing'}}}}}
    post:
      requestBody: {content: {application/json: {schema: {$ref: '#/components/schemas/Thing'}}}}
      responses: {"202": {}}
  /file:
    get:
      responses: {"200": {content: {text/csv: {schema: {type: string}}}}}
  /file-of-many:
    get:
      responses: {"200": {$ref: '#/components/responses/File'}}
components:
  responses:
    File: {content: {text/csv: {schema: {type: string}}}}
  parameters:
    name: {name: name, in: path, required: true, schema: {type: string}}
  schemas:
    Color: {type: string, enum: [red, green]}
    Thing:
      type: object
      description: "A thing. */"
      required: [color]
      properties:
        color: {$ref: '#/components/schemas/Color'}
        sizes: {type: array, items: {type: number}}
        notes: {type: object, additionalProperties: {type: string}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"export type Color = 'red' | 'green';",
		"/** A thing. * / */\nexport type Thing = {\n  color: Color;\n  notes?: Record<string, string>;\n  sizes?: Array<number>;\n};",
		"'/things/{name}': { path: { name: string }; query: { limit?: number }; body: undefined; response: Thing };",
		"'/things/{name}': { path: Record<never, never>; query: Record<never, never>; body: Thing; response: void };",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the types are\n%s\nwithout\n%s", got, want)
		}
	}
	if strings.Contains(string(got), "/file") {
		t.Errorf("a download has a type:\n%s", got)
	}
}

// TestUnknownType: what has no equivalent is an error that says where it is.
func TestUnknownType(t *testing.T) {
	_, err := typesOf([]byte("components: {schemas: {A: {type: object, properties: {b: {type: 'null'}}}}}"))
	if err == nil || !strings.Contains(err.Error(), `schema A: property b: the type "null"`) {
		t.Errorf("the error is %v", err)
	}
}

// TestCommittedTypes: the committed types are those of the committed document.
func TestCommittedTypes(t *testing.T) {
	text, err := os.ReadFile("../../api/rest/v1/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := typesOf(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../ui/src/api.gen.ts")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("ui/src/api.gen.ts is not that of api/rest/v1/openapi.yaml: run make generate")
	}
}
