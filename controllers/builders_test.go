package controllers

import (
	"strings"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
)

// The objects of the tests of package inventory. Scanners are of the type Grype, which the tests map to their own engine.
const (
	nodeAMD          = inventorytest.NodeAMD
	nodeARM          = inventorytest.NodeARM
	fixtureNamespace = inventorytest.Namespace
	web              = inventorytest.Web
	vulnerable       = inventorytest.Vulnerable
)

var (
	digest        = inventorytest.Digest
	imageID       = inventorytest.ImageID
	keyOfImage    = inventorytest.KeyOfImage
	node          = inventorytest.Node
	aPod          = inventorytest.Pod
	running       = inventorytest.Running
	creating      = inventorytest.Creating
	waiting       = inventorytest.Waiting
	loaded        = inventorytest.Loaded
	containerWith = inventorytest.WithContainer
	initialised   = inventorytest.Initialised
	debugged      = inventorytest.Debugged
	labelled      = inventorytest.Labelled
	onNode        = inventorytest.OnNode
	inPhase       = inventorytest.InPhase
	finishedAt    = inventorytest.FinishedAt
	ofCronJob     = inventorytest.OfCronJob
	pulledWith    = inventorytest.PulledWith
	runAs         = inventorytest.RunAs
	ownedBy       = inventorytest.OwnedBy
	aScanner      = inventorytest.Scanner
	theScanner    = inventorytest.TheScanner
	selecting     = inventorytest.Selecting
	excluding     = inventorytest.Excluding
	scanned       = inventorytest.Scanned
	failed        = inventorytest.Failed
	amd64         = inventorytest.AMD64
	noon          = inventorytest.Noon
)

// scanOf returns the ImageScan that the PodReconciler creates for an image.
func scanOf(scanner *v1alpha1.Scanner, reference string, changes ...func(*v1alpha1.ImageScan)) *v1alpha1.ImageScan {
	ref, _ := image.ParseReference(reference)
	scan := inventorytest.ImageScan(scanner, reference)
	scan.Name = inventory.ImageScanName(scanner.UID, keyOfImage(reference), ref.Repository)
	for _, change := range changes {
		change(scan)
	}
	return scan
}

// repeatToLength repeats a text to the given number of bytes.
func repeatToLength(text string, bytes int) string {
	return strings.Repeat(text, bytes/len(text)+1)[:bytes]
}
