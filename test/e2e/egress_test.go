package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/test/scenario"
)

// A namespace's default-deny egress policy makes its Jobs' packets disappear. The local cluster enforces no NetworkPolicy, so the test
// uses the node's packet filter like a network plugin.
func TestDefaultDenyEgress(t *testing.T) {
	if os.Getenv("SCANNER_REGISTRY_LOG") == "" {
		t.Skip("the packet filter of the local cluster's node is needed (SCANNER_REGISTRY_LOG is not set: this is another cluster)")
	}
	for _, tt := range []struct {
		name, filter, reason string
		words                []string
	}{
		{name: "to the registry", filter: "tcp dport 5443 drop", reason: "RegistryUnavailable", words: []string{"NetworkPolicy"}},
		{name: "to the operator", filter: "tcp dport 9443 drop", reason: "IngestUnreachable", words: []string{"NetworkPolicy"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := privateNamespace(t)
			must(t, env.RunPods(t.Context(), ns, privatePod(t, ns)))
			dropPackets(t, tt.filter)
			must(t, env.MakeScanner(t.Context(), ns, scenario.ScannerSettings{}))
			requireFailure(t, ns, tt.reason, tt.words...)
		})
	}
}

// dropPackets drops the packets of pods that match a filter until the test ends.
func dropPackets(t *testing.T, filter string) {
	t.Helper()
	must(t, nft(t.Context(), `table ip scanner-e2e {
  chain local { type filter hook input priority -10; ip saddr 10.244.0.0/16 `+filter+`; }
  chain routed { type filter hook forward priority -10; ip saddr 10.244.0.0/16 `+filter+`; }
}`))
	t.Cleanup(func() { must(t, nft(context.Background(), "delete table ip scanner-e2e")) })
}

// nft changes the packet filter of the node. The tests run in the node's network namespace.
func nft(ctx context.Context, rules string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin, command.Stderr = strings.NewReader(rules), os.Stderr
	return command.Run()
}
