// Package diff decides which change a finding or an image repository is for one receiver.
//
// It is below package store, which streams what may have changed through it, and below package announce, which sends the result. It must
// not know how either stores or sends anything.
package diff

// Change is what happened to a finding or an image repository that makes it worth a notification.
type Change string

// The changes. By default all but the last two are announced.
const (
	// ChangeNew means that the finding passes the receiver's filter and was never announced, or that the exception that suppressed it has
	// ended.
	ChangeNew Change = "New"
	// ChangeFixAvailable means that the finding was announced without a fix, and a fix is available.
	ChangeFixAvailable Change = "FixAvailable"
	// ChangeEscalated means that since its announcement the finding has become known exploited, or its severity has reached the receiver's
	// minimum. It is also the change of a finding that was never announced and was less severe when it was found. A receiver of ChangeNew
	// gets that one as well.
	ChangeEscalated Change = "Escalated"
	// ChangeRegressed means that the finding was announced, was fixed, and is present again.
	ChangeRegressed Change = "Regressed"
	// ChangeFixed means that the finding was announced, and no running image of the repository has it, whichever receivers the image
	// concerns. An image that no pod runs now counts as running while the Scanner has it and its workloads have run no other image of the
	// repository since.
	ChangeFixed Change = "Fixed"
	// ChangeNewImage means that the repository was never announced to the receiver, and nothing in it is to be announced.
	ChangeNewImage Change = "NewImage"
)
