// Package workerapi is the contract between the manager's ingest API and the worker: paths, headers,
// payloads, and the environment and files in a worker's pod.
//
// It is a separate module without any dependency. The worker (which links Grype and Syft) and
// the manager (which links Kubernetes) can therefore share it and nothing else. It knows neither of them.
package workerapi
