package notifier_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scanner-operator/scanner-operator/notifier/receiver"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// largestDelivery returns the largest delivery of a full message that the notifier accepts.
func (c *contract) largestDelivery(b *testing.B, text string) (largest announce.Delivery, size int) {
	b.Helper()
	for n := 1; ; n++ {
		d := c.delivery(fullMessage(text, n))
		raw, err := json.Marshal(d)
		if err != nil {
			b.Fatal(err)
		}
		if len(raw) > announce.MaxDeliveryBytes {
			return largest, size
		}
		largest, size = d, len(raw)
	}
}

// BenchmarkMessages sends the largest messages that the notifier accepts to a server of each type of receiver, which checks its limits. It reports
// the largest request. "make bench PART=exports" has the table.
func BenchmarkMessages(b *testing.B) {
	for kind, of := range receiverTypes {
		b.Run(kind, func(b *testing.B) {
			accepted, most := 0, 0
			for i, text := range []string{"openssl", strings.Repeat("<&\"é", 64)} {
				s := newServer(b, kind, false)
				c := newContractWithin(b, kind, s, receiver.Timeout)
				d, size := c.largestDelivery(b, text)
				d.Message.ID = strings.Repeat(string(rune('a'+i)), 32)
				if got := c.manager.Send(b.Context(), d); got.Result != announce.Delivered {
					b.Fatalf("outcome %+v, want Delivered", got)
				}
				r := s.got()[0]
				of.check(b, r, d)
				accepted, most = max(accepted, size), max(most, len(r.body))
			}
			limit := announce.MaxDeliveryBytes
			if kind == announce.ReceiverTypeTeams {
				limit = maxTeamsBytes
			}
			b.ReportMetric(float64(accepted)/1024, "delivery-KiB")
			b.ReportMetric(float64(most)/1024, "message-KiB")
			b.ReportMetric(float64(limit)/1024, "max-message-KiB")
		})
	}
}
