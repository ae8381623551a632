// Package scenario runs the main functions of the operator from beginning to end on a real cluster. It has an environment with everything
// that the operator needs, and steps that check their results. The demo and the end-to-end tests use the same steps.
//
// Each step either succeeds, or fails within a deadline with the expected and the observed state. The environment starts from the same
// state whatever an earlier run left, and Remove deletes everything.
//
// The package must not use the operator's internals: it sees what users see, through kubectl, the API server, and Slack.
package scenario
