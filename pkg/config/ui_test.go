package config

import (
	"strings"
	"testing"
)

// TestUI: the web UI is served by default. Settings that do not fit together are refused with the field's name.
func TestUI(t *testing.T) {
	if c := Default(); !c.UI.Enabled {
		t.Error("the web UI is not served by default")
	}
	for text, want := range map[string]string{
		"{enabled: false}":                                       "",
		"{url: https://scanner.example.com}":                     "",
		"{url: https://scanner.example.com/}":                    "",
		"{url: https://example.com/a/b, basePath: /a/b}":         "",
		"{basePath: /v1.2/scan-ner_x}":                           "",
		"{tls: {certFile: /tls/tls.crt, keyFile: /tls/tls.key}}": "",
		"{url: https://" + strings.Repeat("a.", 75) + "example}": "ui.url: must be at most 150 bytes",
		"{url: https://example.com/a}":                           "ui.url: ",
		"{url: https://example.com, basePath: /a}":               "ui.url: ",
		"{url: 'https://user:secret@example.com'}":               "ui.url: must not hold credentials",
		"{url: 'javascript:alert(1)'}":                           "ui.url: ",
		"{url: 'https://example.com/?a=b'}":                      "ui.url: ",
		"{basePath: a}":                                          "ui.basePath: ",
		"{basePath: /a/}":                                        "ui.basePath: ",
		"{basePath: /}":                                          "ui.basePath: ",
		"{basePath: /a/../b}":                                    "ui.basePath: ",
		"{basePath: '/{a}'}":                                     "ui.basePath: ",
		"{basePath: '/\"><script>'}":                             "ui.basePath: ",
		"{basePath: /api}":                                       "ui.basePath: ",
		"{basePath: /api/x}":                                     "ui.basePath: ",
		"{tls: {certFile: /tls/tls.crt}}":                        "ui.tls: ",
		"{tls: {certFile: tls.crt, keyFile: /tls.key}}":          "ui.tls.certFile: ",
		"{link: x}": "ui.link: ",
	} {
		_, err := load(t, "ui: "+text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
