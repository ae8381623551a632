package announce

import (
	"errors"
	"fmt"
)

// An epoch is the number of a leadership: each manager that begins to lead has a higher one than all leaders before it. The notifier keeps the
// highest epoch that it has seen and refuses lower ones. So a manager that was replaced and does not know it yet sends nothing. The epoch 0 is
// that of a manager without epochs. The notifier accepts it until it sees another one.

// EpochHeader is the header of a Delivery's request with the manager's epoch as a decimal number. Without the header, the epoch is 0.
const EpochHeader = "Scanner-Operator-Epoch"

// EpochPath followed by an epoch of at least 1 is the notifier's endpoint by which a new leader announces its epoch. It takes PUT without a
// body. The answer is 204 if the notifier refuses lower epochs from now on, also if the epoch was announced before. It is 409 with an
// EpochRefusal as JSON if the notifier has seen a higher epoch. Other status codes are as for DeliveryPath.
const EpochPath = "/v1/epochs/"

// ErrDeposed means that the notifier has seen a higher epoch than the manager's: another manager leads. A DeposedError matches it.
var ErrDeposed = errors.New("another manager leads")

// DeposedError is the error for a manager whose epoch the notifier refuses.
type DeposedError struct {
	// Epoch is the manager's, and Current the highest one that the notifier has seen.
	Epoch, Current int64
}

// Error implements error.
func (e *DeposedError) Error() string {
	return fmt.Sprintf("%v: the notifier has seen its epoch %d and refuses epoch %d", ErrDeposed, e.Current, e.Epoch)
}

// Is makes errors.Is(err, ErrDeposed) true.
func (e *DeposedError) Is(target error) bool { return target == ErrDeposed }

// EpochRefusal is the notifier's answer, with status 409, to a request with an epoch that is too low.
type EpochRefusal struct {
	// Reason is ReasonDeposed.
	Reason string `json:"reason"`
	// Message is for people.
	Message string `json:"message"`
	// Epoch is the highest epoch that the notifier has seen.
	Epoch int64 `json:"epoch"`
}
