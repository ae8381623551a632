package main

import "errors"

func writeSubmission(options) error { return errors.New("later") }
