// Package workerapi is the contract between the manager's ingest API and the worker: paths, headers,
// payloads, and the environment and files that a worker finds in its pod.
//
// It is a module of its own without any dependency, so that the worker (which links Grype and Syft) and
// the manager (which links Kubernetes) share it and nothing else. It knows neither of them.
package workerapi
