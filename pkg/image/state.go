package image

// State is the state of one image of a Scanner. Each image is in exactly one.
type State string

// The states of an image. Metrics use them as labels.
const (
	Scanned  State = "scanned"
	Pending  State = "pending"
	Failed   State = "failed"
	Excluded State = "excluded"
)
