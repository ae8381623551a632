package database

import "time"

// SetPatience is how long a server may send nothing.
func (s *Source) SetPatience(patience time.Duration) { s.patience = patience }
