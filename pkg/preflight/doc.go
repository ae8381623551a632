// Package preflight checks what the operator needs of a cluster before it can work, and builds the commands that provide it.
//
// Permissions: Checker finds out which permissions the operator lacks in a namespace that it scans. The Scanners there can then report it,
// while Scanners elsewhere go on. Checker creates SelfSubjectAccessReviews, which every account may do, and reads no roles.
//
// CRDs: an installer may leave old CustomResourceDefinitions (CRDs) in place. The API server then silently drops the fields that they lack
// from every write, so that a status never becomes what the operator has written. CRDWatcher reads the API server's OpenAPI documents, which
// every account may read; the CRDs themselves are not readable for every account. CRDs that are newer than the operator pass.
//
// Volumes: StoreVolume finds out whether the store outlives the operator's pod.
//
// Stores: OpenStore opens the store as soon as no other manager uses it, and answers probes meanwhile. Two operators on the same Scanners, or
// a store that was lost, show in the store's ID in a Scanner's status.
// DeliveryCounter detects a volume that was rolled back to a snapshot.
//
// Grants: GrantCommands builds the commands with which people let the operator read what it may not read yet.
package preflight
