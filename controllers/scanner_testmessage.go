package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// testRequestOf returns the request for a test message in a scanner's annotation, and the name of the receiver in it; both are empty if there is none.
func testRequestOf(scanner v1alpha1.GenericScanner) (request, receiver string) {
	request = truncate(scanner.GetAnnotations()[v1alpha1.AnnotationTestMessage], v1alpha1.MaxTestMessageBytes)
	receiver, _, _ = strings.Cut(strings.TrimSpace(request), " ")
	return request, receiver
}

// deliverTest sends the test message that the scanner's annotation requests to a destination, if it requests one, and emits an event about its outcome.
func (r *NotificationReconciler) deliverTest(
	ctx context.Context, dispatcher announce.Dispatcher, o *notificationScope, to destination,
) deliveryRun {
	request, receiver := testRequestOf(o.scanner)
	if receiver == "" || to.name() != receiver {
		return deliveryRun{}
	}
	progress, err := dispatcher.DispatchTest(ctx, string(o.scanner.GetUID()), r.settings(o, to), request)
	if outcome := progress.Outcome; outcome != nil {
		ctrl.LoggerFrom(ctx).Info("Sent a test message", "receiver", receiver, "result", outcome.Result, "reason", outcome.Reason, "message", outcome.Message)
		if outcome.Result == announce.Delivered {
			r.Events.Eventf(o.scanner, nil, corev1.EventTypeNormal, v1alpha1.ReasonDelivered, "Notify", "receiver %s took a test message", receiver)
		} else {
			note := truncate(fmt.Sprintf("test message to receiver %s: %s", receiver, outcome.Message), maxEventNote)
			r.Events.Eventf(o.scanner, nil, corev1.EventTypeWarning, cmp.Or(outcome.Reason, v1alpha1.ReasonDeliveryFailed), "Notify", "%s", note)
		}
	}
	if progress.Before.Test != progress.After.Test {
		r.Wakeups.Scanner(ctx, o.scanner)
	}
	return deliveryRun{next: progress.Next, err: err}
}

// setTestMessage sets the status of the test message that the annotation requests.
func (s *scannerScope) setTestMessage() {
	request, receiver := testRequestOf(s.scanner)
	if receiver == "" {
		s.scanner.ScannerStatus().TestMessage = nil
		return
	}
	status := &v1alpha1.TestMessageStatus{Request: request, Outcome: v1alpha1.TestMessagePending}
	s.scanner.ScannerStatus().TestMessage = status
	switch test := s.receivers[receiver].Test; {
	case !slices.Contains(receiverNames(s.scanner), receiver):
		status.Outcome, status.Message = v1alpha1.TestMessageFailed, noSuchReceiver(s.scanner, receiver)
	case test != nil && test.Request == request:
		status.Time = ptr.To(seconds(test.At))
		status.Outcome, status.Message = testOutcome(test)
	case isSuspended(s.scanner):
		status.Message = "spec.suspend is true: the message is sent when that ends"
	}
}

// testOutcome returns the outcome of a test message that was sent, and what the receiver or the notifier says about it.
func testOutcome(test *announce.TestMessage) (outcome v1alpha1.TestMessageOutcome, message string) {
	if test.Outcome == nil {
		return v1alpha1.TestMessagePending, ""
	}
	switch message = test.Outcome.Message; {
	case test.Outcome.Result == announce.Delivered:
		outcome = v1alpha1.TestMessageDelivered
	case test.IsDone():
		outcome = v1alpha1.TestMessageFailed
	default:
		outcome = v1alpha1.TestMessagePending
	}
	if reason := test.Outcome.Reason; reason != "" {
		message = reason + ": " + message
	}
	return outcome, truncate(message, 1024)
}

// noSuchReceiver returns why a name in a request is not that of a receiver.
func noSuchReceiver(scanner v1alpha1.GenericScanner, name string) string {
	if slices.ContainsFunc(scanner.Settings().Exports, func(e v1alpha1.Export) bool { return e.Name == name }) {
		return fmt.Sprintf("%s is an export, which gets no messages: status.exports has its last success and its last error", name)
	}
	return fmt.Sprintf("spec.notifications has no receiver %q; its receivers are: %s", truncate(name, maxUnknownName),
		truncate(cmp.Or(strings.Join(receiverNames(scanner), ", "), "none"), maxMessageNames))
}

// maxMessageNames bounds the names of receivers in a text.
const maxMessageNames = 512
