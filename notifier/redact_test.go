package notifier

import "testing"

// TestRedact: no part of a webhook's address or of a token that can be a secret is left in a text. The host of the address may be.
func TestRedact(t *testing.T) {
	for name, tt := range map[string]struct{ address, text, want string }{
		"the whole address":              {"https://hooks.slack.com/services/T0SECRET1/x", "no https://hooks.slack.com/services/T0SECRET1/x", "no (hidden)"},
		"a part of the path":             {"https://hooks.slack.com/services/T0SECRET1/x", "hooks.slack.com/services: no T0SECRET1", "hooks.slack.com/services: no (hidden)"},
		"a part that begins another one": {"https://hooks.slack.com/Secret/Secret-and-more", "no Secret-and-more", "no (hidden)"},
		"a query without a path":         {"https://chat.example.com?key=a-secret-of-5", "chat.example.com: no a-secret-of-5", "chat.example.com: no (hidden)"},
		"a part of a token":              {"xoxb-123456789012-verysecrettoken3", "no verysecrettoken3", "no (hidden)"},
	} {
		if got := redact(tt.text, tt.address); got != tt.want {
			t.Errorf("%s: %q becomes %q, want %q", name, tt.text, got, tt.want)
		}
	}
}
