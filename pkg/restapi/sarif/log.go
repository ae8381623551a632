package sarif

import "time"

// The part of a SARIF log that Write writes. Field names are those of the standard.
type (
	log struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []run  `json:"runs"`
	}

	run struct {
		Tool              tool              `json:"tool"`
		AutomationDetails automationDetails `json:"automationDetails"`
		Results           []result          `json:"results"`
		Properties        runProperties     `json:"properties"`
	}

	runProperties struct {
		Cluster        string    `json:"cluster,omitempty"`
		Image          string    `json:"image,omitempty"`
		Digest         string    `json:"digest"`
		Platform       string    `json:"platform"`
		PlatformDigest string    `json:"platformDigest"`
		Engine         string    `json:"engine"`
		Tool           string    `json:"tool,omitempty"`
		DataVersion    string    `json:"dataVersion"`
		MatchTime      time.Time `json:"matchTime"`
		Distro         string    `json:"distro,omitempty"`
		NotCovered     []string  `json:"notCovered,omitempty"`
		// Findings is the number of all findings. Truncated means that the least urgent ones are not in the log.
		Findings  int  `json:"findings"`
		Truncated bool `json:"truncated"`
	}

	automationDetails struct {
		ID string `json:"id"`
	}

	tool struct {
		Driver driver `json:"driver"`
	}

	driver struct {
		Name           string `json:"name"`
		Version        string `json:"version"`
		InformationURI string `json:"informationUri"`
		Rules          []rule `json:"rules"`
	}

	rule struct {
		ID                   string         `json:"id"`
		ShortDescription     message        `json:"shortDescription"`
		FullDescription      message        `json:"fullDescription"`
		Help                 message        `json:"help"`
		HelpURI              string         `json:"helpUri,omitempty"`
		DefaultConfiguration configuration  `json:"defaultConfiguration"`
		Properties           ruleProperties `json:"properties"`
	}

	message struct {
		Text string `json:"text"`
	}

	configuration struct {
		Level string `json:"level"`
	}

	ruleProperties struct {
		Tags      []string `json:"tags"`
		Precision string   `json:"precision"`
		// SecuritySeverity is a score from 0.1 to 10.0, as text; empty if the severity is unknown.
		SecuritySeverity string `json:"security-severity,omitempty"`
	}

	result struct {
		RuleID              string            `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               string            `json:"level"`
		Message             message           `json:"message"`
		Locations           []location        `json:"locations"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
		// Suppressions is empty and not left out if nothing suppresses the result: the run knows of suppressions.
		Suppressions []suppression    `json:"suppressions"`
		Properties   resultProperties `json:"properties"`
	}

	resultProperties struct {
		Severity       string    `json:"severity"`
		CVSS           float64   `json:"cvss,omitempty"`
		EPSS           float64   `json:"epss,omitempty"`
		KnownExploited bool      `json:"knownExploited"`
		FixState       string    `json:"fixState"`
		FixVersions    []string  `json:"fixVersions,omitempty"`
		Aliases        []string  `json:"aliases,omitempty"`
		FirstSeenTime  time.Time `json:"firstSeenTime,omitzero"`
		Source         string    `json:"source,omitempty"`
	}

	location struct {
		PhysicalLocation physicalLocation  `json:"physicalLocation"`
		LogicalLocations []logicalLocation `json:"logicalLocations"`
	}

	physicalLocation struct {
		ArtifactLocation artifactLocation `json:"artifactLocation"`
		Region           region           `json:"region"`
	}

	artifactLocation struct {
		URI string `json:"uri"`
	}

	region struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndLine     int `json:"endLine"`
		EndColumn   int `json:"endColumn"`
	}

	logicalLocation struct {
		Name               string `json:"name"`
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}

	suppression struct {
		Kind          string                `json:"kind"`
		Status        string                `json:"status"`
		Justification string                `json:"justification"`
		Properties    suppressionProperties `json:"properties"`
	}

	// suppressionProperties are those of the exception, in the terms of OpenVEX.
	suppressionProperties struct {
		Exception      string    `json:"exception"`
		Status         string    `json:"status"`
		Justification  string    `json:"justification,omitempty"`
		ExpirationTime time.Time `json:"expirationTime,omitzero"`
	}
)

// firstCharacter is the region of a file in which nothing is more exact. Some tools refuse a location without one.
var firstCharacter = region{StartLine: 1, StartColumn: 1, EndLine: 1, EndColumn: 1}
