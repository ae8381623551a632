package teams

import (
	"net/http"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/egress"
)

// TestRetiredConnector: whatever the address of a retired connector answers for good, the error names the way out. A wait and a failure of the server
// are as from a workflow.
func TestRetiredConnector(t *testing.T) {
	const failed = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 400 with ContextId tcid=0."
	wait := http.Header{"Retry-After": {"30"}}
	for _, tt := range []struct {
		name, host string
		answer     receiver.Answer
		want       announce.Result
		retired    bool
	}{
		{"gone", "contoso.webhook.office.com", receiver.Answer{Status: 410}, announce.Permanent, true},
		{"not found, at the first address", "outlook.office.com", receiver.Answer{Status: 404}, announce.Permanent, true},
		{"forbidden, at another address", "outlook.office365.com", receiver.Answer{Status: 403, Body: []byte("Connectors are disabled")}, announce.Permanent, true},
		{"bad request", "contoso.webhook.office.com", receiver.Answer{Status: 400}, announce.Permanent, true},
		{"moved", "contoso.webhook.office.com", receiver.Answer{Status: 301}, announce.Permanent, true},
		{"a failure with status 200", "contoso.webhook.office.com", receiver.Answer{Status: 200, Body: []byte(failed)}, announce.Permanent, true},
		{"delivered", "contoso.webhook.office.com", receiver.Answer{Status: 200, Body: []byte("1")}, announce.Delivered, false},
		{"rate limited", "contoso.webhook.office.com", receiver.Answer{Status: 429, Header: wait}, announce.RateLimited, false},
		{"broken", "contoso.webhook.office.com", receiver.Answer{Status: 500}, announce.Temporary, false},
		{"a workflow that is gone", "prod-01.westeurope.logic.azure.com", receiver.Answer{Status: 410}, announce.Permanent, false},
		{"another server", "webhook.office.com.example.com", receiver.Answer{Status: 410}, announce.Permanent, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := NewPoster(receiver.Network{}).outcome(tt.answer, isConnector(egress.Trusted("https://"+tt.host+"/webhookb2/secret")))
			retired := strings.Contains(got.Message, "retired") && strings.Contains(got.Message, useWorkflow)
			if got.Result != tt.want || retired != tt.retired {
				t.Errorf("outcome %+v, want %s, and that the connector is retired: %t", got, tt.want, tt.retired)
			}
		})
	}
}
