package clair

// Reasons that this backend has, beside those of registries (package workerapi). Those about Clair itself stand in a
// Scanner's condition, and with its images while they wait.
const (
	ReasonNotAllowed          = "ClairNotAllowed"      // the operator's configuration does not list this Clair
	ReasonSettings            = "ClairSettingsInvalid" // the Scanner's settings for Clair cannot be used
	ReasonUnavailable         = "ClairUnavailable"     // it cannot be reached, is broken, or is no Clair
	ReasonUnauthorized        = "ClairUnauthorized"    // it does not take the Scanner's key
	ReasonSecretMissing       = "ClairSecretMissing"   // the Secret with the key is not there, or cannot be used
	ReasonSecretForbidden     = "ClairSecretForbidden" // the operator may not read the Secret with the key
	ReasonPullSecretForbidden = "PullSecretForbidden"  // the registry wants credentials, and the operator may not read the pull secrets
	ReasonIndexFailed         = "ClairIndexFailed"     // Clair works and cannot index the image
	ReasonReportFailed        = "ClairReportFailed"    // Clair works and gives no usable report of the image
	ReasonImageLost           = "ClairLostImage"       // Clair says again and again that it does not know the image
)
