package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

const (
	// testMessageTimeout is how long the command waits unless --timeout says otherwise. The notifier waits for a receiver for half a minute, after other
	// deliveries of the Scanner.
	testMessageTimeout = 2 * time.Minute
	// testMessagePoll is how often the command reads the status.
	testMessagePoll = time.Second
)

func (s *session) testMessageCommand() *cobra.Command {
	var scanner, clusterScanner string
	var timeout time.Duration
	c := &cobra.Command{
		Use: "test-message RECEIVER", Short: "Have a test message sent to a receiver, and wait until it arrives", Args: cobra.ExactArgs(1),
		Long: `Have a test message sent to a receiver, and wait until it arrives.

RECEIVER is a name in spec.notifications. The message says that it is a test. It changes nothing about what is announced, and the alert that an
Alertmanager gets ends by itself. The command sets the annotation ` + v1alpha1.AnnotationTestMessage + ` and reads status.testMessage.
It fails if the receiver does not take the message.`,
		Example: `  kubectl scanner test-message security -n shop
  kubectl scanner test-message security --cluster-scanner platform`,
		RunE: func(c *cobra.Command, args []string) error {
			receiver := args[0]
			if scanner != "" && clusterScanner != "" {
				return errors.New("give either --scanner or --cluster-scanner")
			}
			if clusterScanner != "" {
				return s.sendTestMessage(c.Context(), &v1alpha1.ClusterScanner{}, client.ObjectKey{Name: clusterScanner}, receiver, timeout)
			}
			namespace, err := s.namespace()
			if err == nil && scanner == "" {
				scanner, err = s.scannerWith(c.Context(), namespace, receiver)
			}
			if err != nil {
				return err
			}
			return s.sendTestMessage(c.Context(), &v1alpha1.Scanner{}, client.ObjectKey{Namespace: namespace, Name: scanner}, receiver, timeout)
		},
	}
	c.Flags().StringVar(&scanner, "scanner", "", "the Scanner that has the receiver (default: the only one in the namespace that does)")
	c.Flags().StringVar(&clusterScanner, "cluster-scanner", "", "the ClusterScanner that has the receiver")
	c.Flags().DurationVar(&timeout, "timeout", testMessageTimeout, "how long to wait until it is known whether the message arrived")
	const withClusterScanner = "with --cluster-scanner"
	return s.requires(c,
		own("scanners", "without --scanner and --cluster-scanner", "list"), own("scanners", "without --cluster-scanner", "get", "patch"),
		permission{verbs: []string{"get", "patch"}, group: v1alpha1.GroupVersion.Group, resource: "clusterscanners", scope: inCluster, when: withClusterScanner})
}

// scannerWith returns the name of the only Scanner in a namespace that has a receiver.
func (s *session) scannerWith(ctx context.Context, namespace, receiver string) (string, error) {
	cluster, err := s.cluster()
	if err != nil {
		return "", err
	}
	var all v1alpha1.ScannerList
	if err := cluster.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	var found []string
	for i := range all.Items {
		if hasReceiver(&all.Items[i], receiver) {
			found = append(found, all.Items[i].Name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no Scanner in namespace %s has a receiver %q; that of a ClusterScanner needs --cluster-scanner", namespace, receiver)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d Scanners in namespace %s have a receiver %q: name one with --scanner, such as %s", len(found), namespace, receiver, found[0])
}

func hasReceiver(scanner v1alpha1.GenericScanner, name string) bool {
	return slices.ContainsFunc(scanner.Receivers(), func(r v1alpha1.ClusterReceiver) bool { return r.Name == name })
}

// sendTestMessage requests a test message and waits for its outcome. The error says why the receiver did not take it.
func (s *session) sendTestMessage(ctx context.Context, scanner v1alpha1.GenericScanner, key types.NamespacedName, receiver string, timeout time.Duration) error {
	cluster, err := s.cluster()
	if err != nil {
		return err
	}
	if err := cluster.Get(ctx, key, scanner); err != nil {
		return err
	}
	kind := scanner.ScannerKind()
	switch {
	case !hasReceiver(scanner, receiver):
		return fmt.Errorf("%s %s has no receiver %q in spec.notifications", kind, key.Name, receiver)
	case ptr.Deref(scanner.Settings().Suspend, false):
		return fmt.Errorf("%s %s is suspended, and sends no messages until it is resumed", kind, key.Name)
	}
	// Only a new value counts, so it has the fraction of the second.
	request := receiver + " " + s.Clock.Now().UTC().Format(time.RFC3339Nano)
	if err := annotate(ctx, cluster, scanner, v1alpha1.AnnotationTestMessage, request); err != nil {
		return err
	}
	var status *v1alpha1.TestMessageStatus
	err = wait.PollUntilContextTimeout(ctx, testMessagePoll, timeout, true, func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, key, scanner)
		status = scanner.ScannerStatus().TestMessage
		return status != nil && status.Request == request && status.Outcome != v1alpha1.TestMessagePending, err
	})
	switch {
	case wait.Interrupted(err):
		return fmt.Errorf("it is not known after %s whether receiver %s took the test message: status.testMessage of the %s will say it", timeout, receiver, kind)
	case err != nil:
		return err
	case status.Outcome != v1alpha1.TestMessageDelivered:
		return fmt.Errorf("receiver %s did not take the test message: %s", receiver, status.Message)
	}
	fmt.Fprintf(s.results(), "Receiver %s of %s %s took the test message.\n", receiver, kind, key.Name)
	if status.Message != "" {
		s.remark("%s", status.Message)
	}
	return nil
}
