package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/announce"
	"github.com/scanner-operator/scanner-operator/pkg/exception"
	"github.com/scanner-operator/scanner-operator/pkg/image"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ago returns a time before noon.
func ago(d time.Duration) time.Time { return noon.Add(-d) }

// imageWith returns an image of a Scanner. Without a change it was scanned with the current data an hour ago.
func imageWith(name string, changes ...func(*inventory.CoveredImage)) inventory.CoveredImage {
	img := inventory.CoveredImage{
		ID: name, Name: name, Repositories: []string{name}, State: image.Scanned,
		Report: store.ReportAge{MatchedAt: ago(time.Hour), Current: true},
	}
	for _, change := range changes {
		change(&img)
	}
	return img
}

// pendingFor, failedFor and matched set the state of an image and since when it is in it.
func pendingFor(d time.Duration) func(*inventory.CoveredImage) {
	return func(i *inventory.CoveredImage) {
		i.State, i.Since, i.Report = image.Pending, ago(d), store.ReportAge{}
	}
}

func failedFor(d time.Duration, reason string) func(*inventory.CoveredImage) {
	return func(i *inventory.CoveredImage) {
		i.State, i.Since, i.Reason, i.Report = image.Failed, ago(d), reason, store.ReportAge{}
	}
}

func matched(d time.Duration, current bool) func(*inventory.CoveredImage) {
	return func(i *inventory.CoveredImage) { i.Report = store.ReportAge{MatchedAt: ago(d), Current: current} }
}

func readySince(d time.Duration) func(*inventory.CoveredImage) {
	return func(i *inventory.CoveredImage) { i.Since = ago(d) }
}

func suspended(i *inventory.CoveredImage) { i.Reason = v1alpha1.ReasonSuspended }

func notStarted(i *inventory.CoveredImage) { i.Repositories = nil }

// TestHealthNotices: which health notices a Scanner sends, and which not.
func TestHealthNotices(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	images := func(images ...inventory.CoveredImage) Facts { return Facts{Images: images} }
	unavailable := func(d time.Duration) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: "ClairUnavailable", Message: "no answer", LastTransitionTime: metav1.NewTime(ago(d))}
	}
	failing := func(since time.Duration, detail string, names ...string) announce.Notice {
		return announce.Notice{ID: "ScansFailing", Kind: announce.NoticeScansFailing, Since: ago(since), Detail: detail, Count: len(names), Examples: names}
	}
	cannot := func(since time.Duration, reason string, names ...string) announce.Notice {
		return announce.Notice{ID: "ImagesFailed/" + reason, Kind: announce.NoticeImagesFailed, Since: ago(since), Reason: reason, Count: len(names), Examples: names}
	}
	many := images(imageWith("ok"))
	for _, name := range []string{"f", "b", "d", "a", "c", "e"} {
		many.Images = append(many.Images, imageWith(name, failedFor(2*hour, "RegistryUnavailable")))
	}
	manyFailed := cannot(2*hour, "RegistryUnavailable", "a", "b", "c", "d", "e")
	manyFailed.Count = 6
	clairDown := failing(7*hour, "no answer")
	clairDown.Reason, clairDown.Examples = "ClairUnavailable", nil
	soon, later, past := noon.Add(6*day), noon.Add(8*day), noon.Add(time.Minute)
	for name, tt := range map[string]struct {
		Facts
		want []announce.Notice
	}{
		"nothing runs":        {images(), nil},
		"all is well":         {images(imageWith("web")), nil},
		"nothing new to scan": {images(imageWith("web", matched(90*day, true))), nil},

		"waits not for long":                      {images(imageWith("web", pendingFor(5*hour))), nil},
		"waits for long":                          {images(imageWith("web", pendingFor(6*hour)), imageWith("api", pendingFor(hour))), []announce.Notice{failing(6*hour, "", "api", "web")}},
		"waits while others get a result":         {images(imageWith("web", pendingFor(9*hour)), imageWith("api", matched(hour, true))), nil},
		"waits since others got a result":         {images(imageWith("web", pendingFor(9*hour)), imageWith("api", matched(7*hour, true))), []announce.Notice{failing(7*hour, "", "web")}},
		"waits, and nobody knows since when":      {images(imageWith("web", func(i *inventory.CoveredImage) { i.State = image.Pending })), nil},
		"a node pulls for long":                   {images(imageWith("web", pendingFor(9*hour), notStarted)), nil},
		"excluded":                                {images(imageWith("web", func(i *inventory.CoveredImage) { i.State = image.Excluded })), nil},
		"newer data, and the old results are old": {Facts{Images: []inventory.CoveredImage{imageWith("web", matched(30*hour, false))}, Data: store.DataVersion{Since: ago(hour)}}, nil},
		"newer data for long":                     {Facts{Images: []inventory.CoveredImage{imageWith("web", matched(30*hour, false))}, Data: store.DataVersion{Since: ago(8 * hour)}}, []announce.Notice{failing(8*hour, "", "web")}},
		"newer data for long, with results": {
			Facts{Images: []inventory.CoveredImage{imageWith("web", matched(30*hour, false)), imageWith("api", matched(hour, true))}, Data: store.DataVersion{Since: ago(8 * hour)}}, nil,
		},
		"a rescan of the only image":    {Facts{Images: []inventory.CoveredImage{imageWith("web", matched(10*hour, false))}, Data: store.DataVersion{Since: ago(11 * hour)}}, nil},
		"a rescan of one of two images": {Facts{Images: []inventory.CoveredImage{imageWith("web", matched(10*hour, false)), imageWith("api", matched(10*hour, true))}, Data: store.DataVersion{Since: ago(11 * hour)}}, nil},
		"a new image beside a long failure": {
			images(imageWith("broken", failedFor(90*day, "ImageNotFound")), imageWith("ok", matched(7*hour, true)), imageWith("new", pendingFor(time.Minute))),
			[]announce.Notice{cannot(90*day, "ImageNotFound", "broken")},
		},
		"pending since before it was suspended": {images(imageWith("web", pendingFor(9*hour), suspended)), nil},
		"newer data, resumed":                   {Facts{Images: []inventory.CoveredImage{imageWith("web", matched(30*hour, false), readySince(hour))}, Data: store.DataVersion{Since: ago(8 * hour)}}, nil},
		"newer data, resumed just now":          {Facts{Images: []inventory.CoveredImage{imageWith("web", matched(30*hour, false), suspended)}, Data: store.DataVersion{Since: ago(8 * hour)}}, nil},
		"the engine is away":                    {Facts{Engine: unavailable(5 * hour), Images: []inventory.CoveredImage{imageWith("web")}}, nil},
		"the engine is away for long":           {Facts{Engine: unavailable(7 * hour), Images: []inventory.CoveredImage{imageWith("web")}}, []announce.Notice{clairDown}},
		"the engine is there": {Facts{Engine: metav1.Condition{
			Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(90 * day)),
		}, Images: []inventory.CoveredImage{imageWith("web")}}, nil},

		"one failed just now": {images(imageWith("web"), imageWith("api", failedFor(59*time.Minute, "ImageNotFound"))), nil},
		"one fails for long":  {images(imageWith("web"), imageWith("api", failedFor(90*day, "ImageNotFound"))), []announce.Notice{cannot(90*day, "ImageNotFound", "api")}},
		"reasons apart": {
			images(imageWith("web"), imageWith("api", failedFor(hour, "ImageNotFound")), imageWith("db", failedFor(3*hour, "ImageTooLarge")), imageWith("job", failedFor(2*hour, "ImageNotFound"))),
			[]announce.Notice{cannot(2*hour, "ImageNotFound", "api", "job"), cannot(3*hour, "ImageTooLarge", "db")},
		},
		"more than are named":                 {many, []announce.Notice{manyFailed}},
		"failed, and nobody knows since when": {images(imageWith("web"), imageWith("api", func(i *inventory.CoveredImage) { i.State, i.Reason = image.Failed, "ImageNotFound" })), nil},
		"never pulled":                        {images(imageWith("web", failedFor(7*hour, v1alpha1.ReasonNotPulled), notStarted)), []announce.Notice{cannot(7*hour, v1alpha1.ReasonNotPulled, "web")}},
		"all fail": {
			images(imageWith("web", failedFor(7*hour, "JobRejected"))),
			[]announce.Notice{cannot(7*hour, "JobRejected", "web"), failing(7*hour, "1 of 1 images could not be scanned (JobRejected: web)", "web")},
		},

		"data within its age": {Facts{Data: store.DataVersion{Built: ago(119 * hour)}, MaxDataAge: 120 * hour, DataProblem: "the listing cannot be read"}, nil},
		"old data": {
			Facts{Data: store.DataVersion{Built: ago(121 * hour)}, MaxDataAge: 120 * hour, DataProblem: "121 hours old"},
			[]announce.Notice{{ID: "DataOutdated", Kind: announce.NoticeDataOutdated, Since: ago(hour), Detail: "121 hours old"}},
		},
		"no data":                 {Facts{MaxDataAge: 120 * hour, DataProblem: "none"}, nil},
		"data of which no age is": {Facts{Data: store.DataVersion{Built: ago(99 * day)}}, nil},
		"data with an anomaly": {
			Facts{Anomaly: &store.DataAnomaly{DataVersion: "2", Missing: 312, Total: 1020, Since: ago(day)}},
			[]announce.Notice{{ID: "DataAnomaly", Kind: announce.NoticeDataAnomaly, Since: ago(day), Count: 312, Detail: "312 of 1020 findings are gone"}},
		},

		"exceptions": {
			Facts{
				Exceptions: []exception.Exception{
					{UID: "1", Namespace: "shop", Name: "accepted", Reason: "no way in", Expires: soon}, {UID: "2", Name: "cluster", Expires: past},
					{UID: "3", Name: "idle", Expires: soon}, {UID: "4", Name: "later", Expires: later}, {UID: "5", Name: "forever"},
				},
				Suppressed: map[string]int{"1": 3, "2": 1, "4": 1, "5": 1},
			},
			[]announce.Notice{
				{ID: "ExceptionExpires/1/1772884800", Kind: announce.NoticeExceptionExpires, Until: soon, Name: "shop/accepted", Detail: "no way in", Count: 3},
				{ID: "ExceptionExpires/2/1772366460", Kind: announce.NoticeExceptionExpires, Until: past, Name: "cluster", Count: 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.Now, tt.After = noon, Thresholds{ScansFailing: 6 * time.Hour, ImagesFailed: time.Hour}
			if diff := cmp.Diff(tt.want, tt.Notices()); diff != "" {
				t.Errorf("notices (-want +got):\n%s", diff)
			}
		})
	}
}
