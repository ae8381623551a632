package webhook

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/announce/diff"
	"github.com/scanner-operator/scanner-operator/pkg/finding"
)

const (
	schemaFile = "../../docs/use/changes.v1.schema.json"
	pageFile   = "../../docs/use/receivers.md"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// published returns the published schema, decoded. strict refuses properties that it does not describe.
func published(t *testing.T, strict bool) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if strict {
		forbidOthers(parsed)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// forbidOthers makes each schema of an object with properties refuse others.
func forbidOthers(part any) {
	switch part := part.(type) {
	case map[string]any:
		if _, has := part["properties"]; has && part["type"] == "object" {
			part["additionalProperties"] = false
		}
		for _, value := range part {
			forbidOthers(value)
		}
	case []any:
		for _, value := range part {
			forbidOthers(value)
		}
	}
}

// fill sets all values below v, so that none is left out of JSON: texts to text, numbers to 1, and two elements in each list.
func fill(v reflect.Value, text string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(noon))
		return
	case finding.Severity:
		v.Set(reflect.ValueOf(finding.High))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text)
		fill(value, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	default:
		panic("unexpected kind " + v.Kind().String())
	}
}

// full returns a message with every field set.
func full(text string) announce.Message {
	var m announce.Message
	fill(reflect.ValueOf(&m).Elem(), text)
	m.ID = strings.Repeat("0a", 16)
	return m
}

// TestSchema: the published schema describes every field that an event may have, and no other.
func TestSchema(t *testing.T) {
	strict := published(t, true)
	for name, m := range map[string]announce.Message{
		"every field":   full("x"),
		"hostile texts": full("\"}<script>\u202e\x00\xff\u2028"),
		"no field":      {ID: "0", CreatedAt: noon},
		"a section without items": {ID: "0", CreatedAt: noon, Kind: announce.KindChanges, Sections: []announce.Section{{}}, Actions: []announce.UpdateAction{{}},
			Worst: []announce.Item{{}}, Notices: []announce.Notice{{}}, Namespaces: []announce.NamespaceSummary{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			data := dataOfEvent(t, m)
			if err := strict.Validate(decoded(t, data)); err != nil {
				t.Errorf("the data does not match %s: %v\n%s", schemaFile, err, data)
			}
		})
	}
	// A property of the schema that no event has would be missing in the data with every field.
	properties := map[string]bool{}
	for _, name := range regexp.MustCompile(`"([a-zA-Z]+)":`).FindAllStringSubmatch(string(dataOfEvent(t, full("x"))), -1) {
		properties[name[1]] = true
	}
	for name := range describedProperties(t) {
		if !properties[name] {
			t.Errorf("%s describes %s, which no event has", schemaFile, name)
		}
	}
}

// TestNothingIsLeftOut: an event has all that a message has.
func TestNothingIsLeftOut(t *testing.T) {
	// The attributes, the scanner, items, and the links of readMore have what has no field of the same name.
	elsewhere := []string{"ID", "CreatedAt", "ScannerKind", "Namespace", "Worst", "WebUI"}
	message, data := reflect.TypeFor[announce.Message](), reflect.TypeFor[Data]()
	for i := range message.NumField() {
		name := message.Field(i).Name
		if _, has := data.FieldByName(name); !has && !slices.Contains(elsewhere, name) {
			t.Errorf("an event lacks the field %s of a message", name)
		}
	}
	m := example()
	m.ScannerKind, m.OnlyNamespaces, m.MoreOnlyNamespaces = announce.ClusterScannerKind, []string{"blog", "shop"}, 1
	var got Data
	if err := eventOf(t, m).DataAs(&got); err != nil || !slices.Equal(got.OnlyNamespaces, m.OnlyNamespaces) || got.MoreOnlyNamespaces != 1 {
		t.Errorf("data %+v, error %v, want the namespaces that the message is limited to", got, err)
	}
}

// describedProperties returns the names of all properties in the schema.
func describedProperties(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	var collect func(any)
	collect = func(part any) {
		switch part := part.(type) {
		case map[string]any:
			if properties, has := part["properties"].(map[string]any); has {
				for name := range properties {
					names[name] = true
				}
			}
			for _, value := range part {
				collect(value)
			}
		case []any:
			for _, value := range part {
				collect(value)
			}
		}
	}
	collect(decoded(t, text))
	if len(names) < 50 {
		t.Fatalf("only %d properties were found in %s", len(names), schemaFile)
	}
	return names
}

func dataOfEvent(t *testing.T, m announce.Message) []byte {
	t.Helper()
	return eventOf(t, m).Data()
}

func eventOf(t *testing.T, m announce.Message) cloudevents.Event {
	t.Helper()
	text, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	var event cloudevents.Event
	if err := json.Unmarshal(text, &event); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return event
}

func decoded(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestAttributes: the attributes of an event identify the message and its scanner.
func TestAttributes(t *testing.T) {
	for name, tt := range map[string]struct {
		change          func(*announce.Message)
		source, subject string
		kind            string
	}{
		"a Scanner": {func(*announce.Message) {}, "/apis/scanner-operator.io/v1alpha1/namespaces/shop/scanners/default", "namespaces/shop", "Changes"},
		"a ClusterScanner": {func(m *announce.Message) {
			m.ScannerKind, m.Namespace, m.Scanner, m.Kind = announce.ClusterScannerKind, "", "platform", announce.KindFirstScan
		}, "/apis/scanner-operator.io/v1alpha1/clusterscanners/platform", "cluster", "FirstScan"},
		"a cluster with a name": {func(m *announce.Message) {
			m.Cluster = "prod-eu"
		}, "/clusters/prod-eu/apis/scanner-operator.io/v1alpha1/namespaces/shop/scanners/default", "namespaces/shop", "Changes"},
	} {
		t.Run(name, func(t *testing.T) {
			m := example()
			tt.change(&m)
			event := eventOf(t, m)
			want := []string{"1.0", m.ID, EventType, tt.source, tt.subject, "application/json", "2026-05-04T12:00:00Z"}
			got := []string{event.SpecVersion(), event.ID(), event.Type(), event.Source(), event.Subject(), event.DataContentType(), event.Time().Format(time.RFC3339)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			var data Data
			if err := event.DataAs(&data); err != nil || data.Kind != tt.kind || data.Scanner.Name != m.Scanner || data.Cluster != m.Cluster {
				t.Errorf("data %+v, error %v, want the kind %s", data, err, tt.kind)
			}
		})
	}
}

// example is the message of the example on the page about receivers.
func example() announce.Message {
	return announce.Message{
		ID: "5c0ddbf1a5f84a7f9c1de0f3b2a6c7d8", Kind: announce.KindChanges, Namespace: "shop", Scanner: "default", CreatedAt: noon,
		Totals: finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1}, Changes: map[diff.Change]int{diff.ChangeNew: 1}, Images: 1,
		Sections: []announce.Section{{
			Repository: "registry.example.com/shop/web", References: []string{"1.4"}, Workloads: []string{"Deployment shop/web"}, WorkloadNamespaces: 1,
			Totals: finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1},
			Actions: []announce.UpdateAction{{
				Repository: "registry.example.com/shop/web", Workloads: []string{"Deployment shop/web"}, Package: "openssl", Versions: []string{"3.0.11-1"},
				Fixes: []announce.Fix{{Version: "3.0.13-1", Findings: 1}}, Ends: finding.Counts{Critical: 1, Fixable: 1, KnownExploited: 1}, Items: 1,
			}},
			Items: []announce.Item{{
				Change: diff.ChangeNew, ID: "CVE-2026-0001", Severity: finding.Critical, SeverityBefore: finding.Critical, Package: "openssl", Version: "3.0.11-1",
				FixedIn: "3.0.13-1", FixState: finding.FixStateFixed, KnownExploited: true, URL: "https://security-tracker.debian.org/tracker/CVE-2026-0001",
				FirstSeen: noon,
			}},
		}},
	}
}

// TestExample: the page about receivers has the event of a message as it is sent.
func TestExample(t *testing.T) {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatalf("%s has no example", pageFile)
	}
	text, err := Encode(example())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(t, text), decoded(t, block[1])); diff != "" {
		var indented bytes.Buffer
		_ = json.Indent(&indented, text, "", "  ")
		t.Errorf("the example on %s differs (-sent +page):\n%s\nthe event is\n%s", pageFile, diff, &indented)
	}
	if err := published(t, false).Validate(decoded(t, eventOf(t, example()).Data())); err != nil {
		t.Error(err)
	}
	fields := regexp.MustCompile(`(?:webhookData|event)\.([a-zA-Z.]+)`).FindAllSubmatch(page, -1)
	if len(fields) < 5 {
		t.Fatalf("the examples on %s name only %d fields", pageFile, len(fields))
	}
	for _, field := range fields {
		value := decoded(t, text)
		for part := range strings.SplitSeq(string(field[1]), ".") {
			object, _ := value.(map[string]any)
			if value = object[part]; value == nil {
				t.Errorf("the examples on %s name the field %s, which the event lacks", pageFile, field[1])
				break
			}
		}
	}
}
