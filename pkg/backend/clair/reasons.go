package clair

// Reasons of this backend, in addition to those of registries (package workerapi). Reasons about Clair itself appear in the Scanner's
// condition, and on its images while they wait.
const (
	ReasonNotAllowed          = "ClairNotAllowed"      // the operator's configuration does not list this Clair
	ReasonSettings            = "ClairSettingsInvalid" // the Scanner's settings for Clair are invalid
	ReasonUnavailable         = "ClairUnavailable"     // Clair cannot be reached or is broken, or the server is not Clair
	ReasonUnauthorized        = "ClairUnauthorized"    // Clair rejects the Scanner's pre-shared key
	ReasonSecretMissing       = "ClairSecretMissing"   // the Secret with the pre-shared key is missing or invalid
	ReasonSecretForbidden     = "ClairSecretForbidden" // the operator may not read the Secret with the pre-shared key
	ReasonPullSecretForbidden = "PullSecretForbidden"  // the registry requires credentials, and the operator may not read the pull secrets
	ReasonIndexFailed         = "ClairIndexFailed"     // Clair works but cannot index the image
	ReasonReportFailed        = "ClairReportFailed"    // Clair works but returns no usable report of the image
	ReasonImageLost           = "ClairLostImage"       // Clair repeatedly does not know an image that it indexed before
)
