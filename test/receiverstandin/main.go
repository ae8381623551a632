// Command receiverstandin simulates the programs that receive messages and exports, apart from Slack, for tests: package standin describes them. They
// are at https://…/<channel>/webhook, teams, alertmanager, dojo and track, and the mail server on a port of its own.
//
// On a further port, over plain HTTP, GET /state/<channel> returns what they have as JSON, and POST /loses/<channel> makes DefectDojo's next answer
// get lost.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/scanner-operator/scanner-operator/test/receiverstandin/standin"
)

func main() {
	listen := flag.String("listen", ":8443", "address for webhooks, Teams, Alertmanager and the tools, over TLS")
	mail := flag.String("mail", ":2525", "address for the mail server, with STARTTLS")
	control := flag.String("control", ":8080", "address for GET /state, plain HTTP")
	host := flag.String("host", "localhost", "name of this host, as others address it")
	cert := flag.String("cert", "/etc/receiverstandin/tls.crt", "certificate, PEM")
	key := flag.String("key", "/etc/receiverstandin/tls.key", "its key, PEM")
	flag.Parse()
	if err := run(*listen, *mail, *control, *host, *cert, *key); err != nil {
		fmt.Fprintln(os.Stderr, "receiverstandin:", err)
		os.Exit(1)
	}
}

// run serves until the process receives a signal.
func run(listen, mail, control, host, cert, key string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s := standin.New("http://"+host+control, os.Stdout)
	programs := &http.Server{Addr: listen, Handler: s.Programs(), TLSConfig: config, ReadHeaderTimeout: 10 * time.Second}
	controls := &http.Server{Addr: control, Handler: s.Control(), ReadHeaderTimeout: 10 * time.Second}
	mails := s.MailServer(host, config)
	mails.Addr = mail
	ended := make(chan error, 3)
	go func() { ended <- programs.ListenAndServeTLS("", "") }()
	go func() { ended <- controls.ListenAndServe() }()
	go func() { ended <- mails.ListenAndServe() }()
	fmt.Printf("programs on %s, mails on %s, control on %s\n", listen, mail, control)
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	return errors.Join(err, programs.Close(), controls.Close(), mails.Close())
}
