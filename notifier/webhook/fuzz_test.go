package webhook

import (
	"bytes"
	"encoding/json"
	"net/url"
	"testing"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/scanner-operator/scanner-operator/notifier/internal/messagetest"
)

// FuzzEncode: whatever names an image contains, a message becomes a valid CloudEvent with the message's own attributes, and the data that a receiver decodes
// is that of the message.
func FuzzEncode(f *testing.F) {
	for i, text := range messagetest.Seeds {
		f.Add(text, "https://nvd.nist.gov/vuln/detail/CVE-2026-0001?a=b&c=d", uint8(i))
	}
	f.Add(`","type":"x","id":"y`, "", uint8(1))
	f.Fuzz(func(t *testing.T, text, address string, number uint8) {
		m := messagetest.Of(text, address, number)
		body, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		var event cloudevents.Event
		if err := json.Unmarshal(body, &event); err != nil || event.Validate() != nil || !utf8.Valid(body) {
			t.Fatalf("%q becomes %q: %v %v", text, body, err, event.Validate())
		}
		source, err := url.Parse(event.Source())
		if err != nil || source.Host != "" || event.ID() != m.ID || event.Type() != EventType || !event.Time().Equal(m.CreatedAt) || len(event.Extensions()) != 0 {
			t.Errorf("%q becomes the event %s: %v", text, event, err)
		}
		var got Data
		decoder := json.NewDecoder(bytes.NewReader(event.Data()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&got); err != nil {
			t.Fatalf("%q becomes the data %q: %v", text, event.Data(), err)
		}
		if !utf8.ValidString(text) || !utf8.ValidString(address) {
			return // JSON has no such text
		}
		if diff := cmp.Diff(dataOf(m.WithActions()), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q is decoded as (-sent +received):\n%s", text, diff)
		}
	})
}
