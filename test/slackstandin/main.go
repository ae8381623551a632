// Command slackstandin simulates Slack for demos and tests. It accepts messages over TLS like Slack's incoming webhooks, and like
// chat.postMessage for Slack apps, checks each against Slack's limits and prints it.
//
// On a second port, over plain HTTP, GET /messages returns the received messages as JSON, and POST /control makes the next requests
// fail, for example with {"status":500,"times":2} or {"hang":true}. POST /workspace makes channels and tokens of apps fail, for example with
// {"channels":{"#shop":"not_in_channel"}}, or deletes messages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/scanner-operator/scanner-operator/test/slackstandin/standin"
)

func main() {
	listen := flag.String("listen", ":8443", "address for the webhooks, over TLS")
	control := flag.String("control", ":8080", "address for GET /messages and POST /control, plain HTTP")
	cert := flag.String("cert", "/etc/slackstandin/tls.crt", "certificate, PEM")
	key := flag.String("key", "/etc/slackstandin/tls.key", "its key, PEM")
	flag.Parse()
	if err := run(*listen, *control, *cert, *key); err != nil {
		fmt.Fprintln(os.Stderr, "slackstandin:", err)
		os.Exit(1)
	}
}

// run serves until the process receives a signal.
func run(listen, control, cert, key string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	slack := standin.New(time.Now, os.Stdout)
	webhooks := &http.Server{Addr: listen, Handler: slack.Webhooks(), ReadHeaderTimeout: 10 * time.Second}
	controls := &http.Server{Addr: control, Handler: slack.Control(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 2)
	go func() { ended <- webhooks.ListenAndServeTLS(cert, key) }()
	go func() { ended <- controls.ListenAndServe() }()
	fmt.Printf("webhooks on %s, control on %s\n", listen, control)
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	// Requests that hang on purpose would never end.
	return errors.Join(err, webhooks.Close(), controls.Close())
}
