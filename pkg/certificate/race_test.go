package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// writeFirst has another manager work just before the first write of this one.
func (i *installation) writeFirst(t *testing.T, other func(*Authority)) {
	t.Helper()
	winner := &Authority{Client: i.client, Reader: i.client, Clock: i.clock, Namespace: namespace, Secret: secretName}
	once := true
	first := func() {
		if once {
			once = false
			other(winner)
		}
	}
	i.Client = interceptor.NewClient(i.client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			first()
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			first()
			return c.Update(ctx, o, opts...)
		},
	})
}

// TestTwoManagersAtOnce: two managers create, publish or promote an authority at the same time. The second uses what the first has written,
// and the clients of each trust both.
func TestTwoManagersAtOnce(t *testing.T) {
	for name, after := range map[string][]time.Duration{
		"the first start":             nil,
		"a next one is announced":     {authorityLifetime - renewBefore},
		"the next one begins to sign": {authorityLifetime - renewBefore, overlap + time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			for _, d := range after {
				i.refresh(t)
				i.advanceClock(d)
			}
			var others []byte
			i.writeFirst(t, func(winner *Authority) {
				if err := winner.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				others = winner.Bundle()
			})
			i.refresh(t)
			if len(others) == 0 || !bytes.Equal(i.Bundle(), others) {
				t.Errorf("the second manager has a bundle of %d certificates, the first another one of %d", certificates(i.Bundle()), certificates(others))
			}
			if err := i.verifyServer(others); err != nil {
				t.Errorf("the first manager's clients do not trust the second: %v", err)
			}
		})
	}
}

// TestTwoManagersPublish: the second manager keeps the serving certificate that the first has written.
func TestTwoManagersPublish(t *testing.T) {
	for name, exists := range map[string]bool{"a new one": false, "one that is to be renewed": true} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t)
			i.refresh(t)
			if exists {
				if err := i.PublishServing(t.Context(), servingName, hostName); err != nil {
					t.Fatal(err)
				}
				i.advanceClock(servingLifetime / 2)
			}
			i.writeFirst(t, func(winner *Authority) {
				if err := winner.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := winner.PublishServing(t.Context(), servingName, hostName); err != nil {
					t.Fatal(err)
				}
			})
			if err := i.PublishServing(t.Context(), servingName, hostName); err != nil {
				t.Fatalf("the second manager ends: %v", err)
			}
			secret := i.secret(t, servingName)
			if serving, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"]); err != nil || !i.isFresh(serving.Leaf) {
				t.Error("the certificate in the Secret is not a fresh one of the authority")
			}
		})
	}
}
