package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
)

// receiverStore is the part of the store that has the states of receivers.
type receiverStore interface {
	ReceiverState(ctx context.Context, scanner, receiver string) ([]byte, error)
}

// receiverStates reads the state of each destination of a scanner, by name.
func receiverStates(
	ctx context.Context, from receiverStore, scanner v1alpha1.GenericScanner, destinations []destination,
) (map[string]announce.State, error) {
	states := map[string]announce.State{}
	for _, name := range destinationNames(destinations) {
		raw, err := from.ReceiverState(ctx, string(scanner.GetUID()), name)
		if err != nil {
			return nil, err
		}
		if states[name], err = announce.ParseState(raw); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// maxUnknownReceivers is the number of receivers that a message names. It shows at most maxUnknownName bytes of each, as many as a receiver's
// name may have.
const (
	maxUnknownReceivers = 3
	maxUnknownName      = 63
)

// describeUnknown returns a message about unknown receivers, each with one object that names it; empty if there are none. It is deterministic.
func describeUnknown(receivers map[string]string) string {
	if len(receivers) == 0 {
		return ""
	}
	unknown := map[string]string{}
	for name, by := range receivers {
		shown := fmt.Sprintf("%q", truncate(name, maxUnknownName))
		if unknown[shown] == "" || by < unknown[shown] {
			unknown[shown] = by
		}
	}
	names := slices.Sorted(maps.Keys(unknown))
	var parts []string
	for _, name := range names[:min(len(names), maxUnknownReceivers)] {
		parts = append(parts, fmt.Sprintf("%s (%s)", name, truncate(unknown[name], maxWorkloadBytes)))
	}
	text := "the annotation " + v1alpha1.AnnotationReceiver + " names receivers that no scanner lets the workloads use: " + strings.Join(parts, ", ")
	if more := len(names) - len(parts); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ". Such a name counts as none"
}
