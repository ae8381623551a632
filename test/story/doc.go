// Package story is the main job of the operator told once from beginning to end on a real cluster: an environment with
// everything that it takes, and steps that each check what they promise. The demonstration and the end-to-end tests
// tell the same story.
//
// It promises that each step either succeeds or says what was expected and what was seen instead, within a deadline;
// that it starts from the same state whatever an earlier run left; and that Remove leaves nothing behind.
//
// It must not reach into the operator: it sees what users see, through kubectl, the API server, and Slack's side.
package story
