package controllers

import (
	"maps"
	"slices"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
)

// destination is a receiver or, for a ClusterScanner's receiver with allowed channels, the part of it that goes to one Slack channel. Each
// destination has its own state in the store, so that what is announced in one channel is not announced in another.
type destination struct {
	v1alpha1.ClusterReceiver
	// channel is the channel that some namespaces have chosen; empty for the receiver's own.
	channel string
	// namespaces are those whose messages go to the destination; nil for a Scanner.
	namespaces map[string]bool
}

// name identifies the destination in the store. No receiver has a name with a slash.
func (d destination) name() string {
	if d.channel == "" {
		return d.Name
	}
	return d.Name + "/" + d.channel
}

// onlyNamespaces returns the namespaces that have chosen the destination's channel, sorted; nil for a receiver's own channel. Its messages are
// about the cluster, although they leave out the namespaces with another channel.
func (d destination) onlyNamespaces() []string {
	if d.channel == "" {
		return nil
	}
	return slices.Sorted(maps.Keys(d.namespaces))
}

// destinationsOf returns the destinations of a scanner's receivers: each receiver, and then one for each channel that a covered namespace has
// chosen for it and that the receiver allows.
func destinationsOf(scanner v1alpha1.GenericScanner, namespaces inventory.Namespaces) (all []destination) {
	for _, receiver := range scanner.Receivers() {
		own := destination{ClusterReceiver: receiver}
		if scanner.ScannerKind() == v1alpha1.KindClusterScanner {
			// Images of a namespace that has just left are still in the store for a moment.
			own.namespaces = map[string]bool{}
			for _, namespace := range namespaces.Covered {
				own.namespaces[namespace] = true
			}
		}
		chosen := map[string]map[string]bool{}
		for namespace, channel := range namespaces.SlackChannels {
			if slices.Contains(receiver.AllowedChannels, channel) && channel != receiver.Slack.Channel {
				if chosen[channel] == nil {
					chosen[channel] = map[string]bool{}
				}
				chosen[channel][namespace] = true
			}
		}
		for _, there := range chosen {
			maps.DeleteFunc(own.namespaces, func(namespace string, _ bool) bool { return there[namespace] })
		}
		all = append(all, own)
		for _, channel := range slices.Sorted(maps.Keys(chosen)) {
			all = append(all, destination{ClusterReceiver: receiver, channel: channel, namespaces: chosen[channel]})
		}
	}
	return all
}

// possibleDestinations returns the names of all destinations that a scanner's receivers may have, whatever namespaces choose now. A channel that
// a namespace chooses again continues where it was.
func possibleDestinations(scanner v1alpha1.GenericScanner) (names []string) {
	for _, receiver := range scanner.Receivers() {
		names = append(names, destination{ClusterReceiver: receiver}.name())
		for _, channel := range receiver.AllowedChannels {
			names = append(names, destination{ClusterReceiver: receiver, channel: channel}.name())
		}
	}
	return names
}

// destinationNames returns the names of some destinations.
func destinationNames(all []destination) (names []string) {
	for _, d := range all {
		names = append(names, d.name())
	}
	return names
}
