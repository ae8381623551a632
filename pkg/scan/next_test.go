package scan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var (
	now      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	catalog  = &store.Catalog{PlatformDigest: "sha256:platform"}
	oldData  = store.DataVersion{Version: "v1"}
	newData  = store.DataVersion{Version: "v2"}
	report   = &store.Summary{DataVersion: oldData.Version}
	noData   = &backend.Failure{Reason: v1alpha1.ReasonNoVulnerabilityData, Message: "there is none"}
	current  = Results{Catalog: catalog, Report: report, Data: oldData}
	outdated = Results{Catalog: catalog, Report: report, Data: newData}
)

// matchFailed returns results with a failure of the last match.
func matchFailed(failedAt, retryAt time.Duration) Results {
	return Results{Catalog: catalog, Report: report, Data: newData, MatchFailure: &store.MatchFailure{
		Reason: "MatchFailed", Message: "no", FailedAt: now.Add(failedAt), RetryAt: now.Add(retryAt),
	}}
}

// TestNext is the specification of what happens next with an image.
func TestNext(t *testing.T) {
	suspended := Decision{Action: Wait, Reason: v1alpha1.ReasonSuspended, Message: "the Scanner is suspended", RetryAfter: time.Hour}
	refused := Decision{Action: Wait, Reason: v1alpha1.ReasonTooManyScanners, Message: "the namespace has too many Scanners; see this image's own", RetryAfter: time.Hour}
	disabled := Decision{Action: Fail, Reason: v1alpha1.ReasonBackendDisabled, Message: "this operator runs without the backend Clair"}
	failure := &backend.Failure{Reason: "Broken", Message: "it is broken"}
	for name, tt := range map[string]struct {
		facts Facts
		want  Decision
	}{
		// From a new image to its result.
		"a new image is cataloged":             {Facts{}, Decision{Action: StartCatalog}},
		"a cataloged image is matched":         {Facts{Results: Results{Catalog: catalog, Data: oldData}}, Decision{Action: RequestMatch, Cataloged: true}},
		"an image with a current report":       {Facts{Results: current}, Decision{Action: Finish, Cataloged: true}},
		"newer data: it is matched again":      {Facts{Results: outdated, HasResult: true}, Decision{Action: RequestMatch, Cataloged: true}},
		"a report that outlasted its catalog":  {Facts{Results: Results{Report: report, Data: oldData}, HasResult: true}, Decision{Action: StartCatalog}},
		"no data yet: the engine explains it":  {Facts{Results: Results{Catalog: catalog, NoData: noData}}, Decision{Action: RequestMatch, Cataloged: true}},
		"no data now, and a current report":    {Facts{Results: Results{Catalog: catalog, Report: report, Data: oldData, NoData: noData}}, Decision{Action: Finish, Cataloged: true}},
		"a report without data is not current": {Facts{Results: Results{Catalog: catalog, Report: &store.Summary{}}}, Decision{Action: RequestMatch, Cataloged: true}},

		// Failed matches.
		"the last match failed":        {Facts{Results: matchFailed(-time.Minute, time.Hour)}, Decision{Action: Fail, Reason: "MatchFailed", Message: "no", RetryAfter: time.Hour, Cataloged: true}},
		"a failed match is retried":    {Facts{Results: matchFailed(-time.Hour, 0)}, Decision{Action: RequestMatch, Cataloged: true}},
		"a failed match of the future": {Facts{Results: matchFailed(time.Minute, time.Hour)}, Decision{Action: RequestMatch, Cataloged: true}},
		"a failed match, and no data now": {
			Facts{Results: Results{Catalog: catalog, NoData: noData, MatchFailure: matchFailed(-time.Minute, time.Hour).MatchFailure}},
			Decision{Action: RequestMatch, Cataloged: true},
		},

		// Failed attempts.
		"a failed image waits":                     {Facts{Failed: true, NextAttempt: now.Add(time.Minute)}, Decision{Action: Wait, RetryAfter: time.Minute}},
		"a failed image is retried":                {Facts{Failed: true, NextAttempt: now}, Decision{Action: StartCatalog}},
		"a failed image after a rescan request":    {Facts{Failed: true}, Decision{Action: StartCatalog}},
		"the clock was set back":                   {Facts{Failed: true, NextAttempt: now.Add(48 * time.Hour)}, Decision{Action: Wait, RetryAfter: time.Hour}},
		"another Scanner's attempt cataloged it":   {Facts{Failed: true, NextAttempt: now.Add(time.Minute), Results: Results{Catalog: catalog, Data: oldData}}, Decision{Action: RequestMatch, Cataloged: true}},
		"its match failed, and is not retried yet": {Facts{Failed: true, NextAttempt: now.Add(time.Minute), CatalogedAs: catalog.PlatformDigest, Results: outdated}, Decision{Action: Wait, RetryAfter: time.Minute}},
		"its report came meanwhile":                {Facts{Failed: true, NextAttempt: now.Add(time.Minute), CatalogedAs: catalog.PlatformDigest, Results: current}, Decision{Action: Finish, Cataloged: true}},
		"a time without a failure counts for nothing": {
			Facts{NextAttempt: now.Add(time.Minute)}, Decision{Action: StartCatalog},
		},

		// Images that no pod runs.
		"unused, retention over":           {Facts{Unused: true, HasResult: true, Results: current}, Decision{Action: Retire}},
		"unused, without a result":         {Facts{Unused: true, Retention: time.Hour}, Decision{Action: Wait, Reason: v1alpha1.ReasonUnused, Message: "no pod uses the image any more", RetryAfter: time.Hour}},
		"unused, with a result":            {Facts{Unused: true, Retention: time.Hour, HasResult: true, Results: outdated}, Decision{Action: Wait, RetryAfter: time.Hour}},
		"unused, failed":                   {Facts{Unused: true, Retention: time.Hour, Failed: true}, Decision{Action: Wait, RetryAfter: time.Hour}},
		"its pods ended: it is cataloged":  {Facts{Unused: true, Retention: time.Hour, StaysInUse: true}, Decision{Action: StartCatalog}},
		"its pods ended: it has a report":  {Facts{Unused: true, Retention: time.Hour, StaysInUse: true, Results: current}, Decision{Action: Finish, RetryAfter: time.Hour, Cataloged: true}},
		"its pods ended, retention over":   {Facts{Unused: true, StaysInUse: true, Results: current}, Decision{Action: Retire}},
		"its only pod is on a new node":    {Facts{Unused: true, PlatformUnknown: true, Results: current}, Decision{Action: Wait, RetryAfter: NodeRetry}},
		"one of its pods is on a new node": {Facts{PlatformUnknown: true, Results: current}, Decision{Action: Finish, RetryAfter: NodeRetry, Cataloged: true}},

		// The Scanner and its engine.
		"suspended":                          {Facts{Suspended: true}, suspended},
		"suspended, with a failed image":     {Facts{Suspended: true, Failed: true, NextAttempt: now.Add(time.Minute)}, suspended},
		"refused":                            {Facts{Refused: true, Suspended: true}, refused},
		"no such engine":                     {Facts{EngineDisabled: true, Engine: v1alpha1.BackendClair}, disabled},
		"no such engine, failed before":      {Facts{EngineDisabled: true, Engine: v1alpha1.BackendClair, Failed: true, NextAttempt: now.Add(time.Minute)}, Decision{Action: Wait, RetryAfter: time.Minute}},
		"no such engine, and its retry":      {Facts{EngineDisabled: true, Engine: v1alpha1.BackendClair, Failed: true, NextAttempt: now}, disabled},
		"unusable settings of a new image":   {Facts{Results: Results{SettingsProblem: failure}}, Decision{Action: Wait, Reason: "Broken", Message: "it is broken", RetryAfter: 2 * time.Minute}},
		"unusable settings beside a result":  {Facts{HasResult: true, Results: Results{Catalog: catalog, Report: report, Data: oldData, SettingsProblem: failure}}, Decision{Action: Wait, Reason: "Broken", Message: "it is broken", RetryAfter: 2 * time.Minute}},
		"the store is broken":                {Facts{StoreProblem: failure}, Decision{Action: Wait, Reason: "Broken", Message: "it is broken", RetryAfter: StoreRetry}},
		"the store is broken, with a result": {Facts{StoreProblem: failure, HasResult: true}, Decision{Action: Wait, RetryAfter: StoreRetry}},
		"the store is broken, failed before": {Facts{StoreProblem: failure, Failed: true}, Decision{Action: Wait, RetryAfter: StoreRetry}},
		"the store is broken, unused":        {Facts{StoreProblem: failure, HasResult: true, Unused: true}, Decision{Action: Wait, RetryAfter: StoreRetry}},
		"an image that is in no registry": {Facts{BareImageID: true}, Decision{
			Action: Fail, Reason: v1alpha1.ReasonBareImageID, RetryAfter: time.Hour, Message: "the node knows this image only by its own id: " +
				"it was built or loaded there and is in no registry. Push it to a registry and run it from there",
		}},

		// Requests.
		"a rescan is requested":                   {Facts{RescanRequested: true, Results: current}, Decision{Action: HandleRescan}},
		"a rescan of a failed image":              {Facts{RescanRequested: true, Failed: true, NextAttempt: now.Add(time.Hour)}, Decision{Action: HandleRescan}},
		"a rescan while the Scanner is suspended": {Facts{RescanRequested: true, Suspended: true}, suspended},
		"a rescan while the Scanner is refused":   {Facts{RescanRequested: true, Refused: true}, refused},
		"a rescan without the engine":             {Facts{RescanRequested: true, EngineDisabled: true, Engine: v1alpha1.BackendClair}, disabled},
		"its ImageScan was recreated":             {Facts{Recreated: true, Results: current}, Decision{Action: Rematch, Cataloged: true}},
		"a match is requested":                    {Facts{MatchRequested: true, Results: current}, Decision{Action: PollData, Cataloged: true}},
		"both":                                    {Facts{Recreated: true, MatchRequested: true, Results: current}, Decision{Action: Rematch, Cataloged: true}},
		"a request waits for the catalog":         {Facts{Recreated: true, MatchRequested: true}, Decision{Action: StartCatalog}},
		"a request waits for the next attempt":    {Facts{MatchRequested: true, Failed: true, NextAttempt: now.Add(time.Minute)}, Decision{Action: Wait, RetryAfter: time.Minute}},
		"a request overrides a failed match":      {Facts{Recreated: true, Results: matchFailed(-time.Minute, time.Hour)}, Decision{Action: Rematch, Cataloged: true}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.facts.Now = now
			if diff := cmp.Diff(tt.want, Next(tt.facts)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
