package scenario

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/scanner-operator/scanner-operator/test/images"
	"github.com/scanner-operator/scanner-operator/test/receiverstandin/standin"
)

// ReceiverHost is the host of the stand-in for the programs that receive messages and exports, apart from Slack.
const ReceiverHost = "receivers." + InfraNamespace + ".svc"

// ReceiverURL returns the URL of a program of a channel, by its path in package standin.
func ReceiverURL(channel, path string) string {
	return "https://" + ReceiverHost + "/" + channel + "/" + path
}

func (e *Environment) startReceivers(ctx context.Context) (string, error) {
	image, err := e.loadImage(images.Receivers)
	if err != nil {
		return "", err
	}
	reference, err := e.Push(ctx, images.Receivers, image)
	if err != nil {
		return "", err
	}
	certificate, err := newServing(ReceiverHost, time.Now())
	if err != nil {
		return "", err
	}
	e.receiverAuthority = certificate.authority
	err = e.Apply(ctx, "receivers.yaml", map[string]string{
		"Namespace": InfraNamespace, "Image": reference, "Host": ReceiverHost,
		"Certificate": base64.StdEncoding.EncodeToString(certificate.certificate),
		"Key":         base64.StdEncoding.EncodeToString(certificate.key),
	})
	if err != nil {
		return "", err
	}
	return "https://" + ReceiverHost, e.WaitForRollout(ctx, InfraNamespace, "deployment/receivers")
}

// Received returns what the programs of a channel have got.
func (e *Environment) Received(ctx context.Context, channel string) (standin.State, error) {
	var state standin.State
	raw, err := e.Clientset.CoreV1().Services(InfraNamespace).ProxyGet("http", "receivers", "control", "state/"+channel, nil).DoRaw(ctx)
	if err != nil {
		return state, fmt.Errorf("ask the stand-in for receivers what it has: %w", err)
	}
	return state, json.Unmarshal(raw, &state)
}

// DefectDojoLosesAnswer makes the stand-in accept the next import of a channel to DefectDojo without saying so.
func (e *Environment) DefectDojoLosesAnswer(ctx context.Context, channel string) error {
	return e.Clientset.CoreV1().RESTClient().Post().Namespace(InfraNamespace).Resource("services").Name("http:receivers:control").
		SubResource("proxy").Suffix("loses", channel).Do(ctx).Error()
}

// MakeSecrets creates Secrets of receivers and exports by name, and lets the notifier read them.
func (e *Environment) MakeSecrets(ctx context.Context, namespace string, secrets map[string]map[string]string) error {
	return e.Apply(ctx, "secrets.yaml", map[string]any{"Namespace": namespace, "System": SystemNamespace, "Secrets": secrets})
}

// installOpenReports installs the CRD of Reports unless the cluster has it. Remove deletes only the one that was installed here.
func (e *Environment) installOpenReports(ctx context.Context) (string, error) {
	const crd = "reports.openreports.io"
	listed, err := e.Kubectl(ctx, "get", "crd", crd, "--ignore-not-found", "--output", "name")
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(listed) != "" {
		return "is there", nil
	}
	if _, err := e.Kubectl(ctx, "create", "--filename", filepath.Join(e.Root, "pkg", "openreports", "testdata", "openreports.io_reports.yaml")); err != nil {
		return "", err
	}
	_, err = e.Kubectl(ctx, "label", "crd", crd, Label+"=true")
	return crd, err
}
