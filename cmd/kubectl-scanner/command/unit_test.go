package command

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	restclient "github.com/scanner-operator/scanner-operator/api/rest/v1/client"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/cmd/kubectl-scanner/connect"
)

// TestWhyNotCovered: why a running pod's image has no ImageScan of a Scanner.
func TestWhyNotCovered(t *testing.T) {
	s := App{Clock: clocktesting.NewFakePassiveClock(noon)}.newSession()
	for name, tt := range map[string]struct {
		settings v1alpha1.ScanSettings
		pod      func(*corev1.Pod)
		want     []string // parts of state, reason and message
	}{
		"the pod's label":      {v1alpha1.ScanSettings{IgnoreLabel: "ignore"}, func(p *corev1.Pod) { p.Labels = map[string]string{"ignore": "true"} }, []string{"Excluded", "ignoreLabel", "ignore=true"}},
		"another label":        {v1alpha1.ScanSettings{IgnoreLabel: "ignore"}, func(p *corev1.Pod) { p.Labels = map[string]string{"ignore": "false"} }, []string{"Pending", "the pod is Running"}},
		"the selector":         {v1alpha1.ScanSettings{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}, func(*corev1.Pod) {}, []string{"Excluded", "podSelector"}},
		"the image by its tag": {v1alpha1.ScanSettings{Images: v1alpha1.ImageFilter{Exclude: []string{"x", "*:dev-*"}}}, func(*corev1.Pod) {}, []string{"Excluded", "images.exclude", "*:dev-*"}},
		"another tag":          {v1alpha1.ScanSettings{Images: v1alpha1.ImageFilter{Exclude: []string{"*:prod-*"}}}, func(*corev1.Pod) {}, []string{"Pending"}},
		"a pod that has ended": {v1alpha1.ScanSettings{}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, []string{"NotScanned", "ended"}},
		"a suspended Scanner":  {v1alpha1.ScanSettings{Suspend: ptr.To(true)}, func(*corev1.Pod) {}, []string{"Pending", "Suspended", "suspended"}},
		"a new pod":            {v1alpha1.ScanSettings{}, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-5 * time.Second)) }, []string{"Pending", "new (5 s)"}},
		"a pull that fails": {v1alpha1.ScanSettings{}, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}}}
		}, []string{"Pending", "ImagePullBackOff not found"}},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "shop/web:dev-1"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		tt.pod(pod)
		e := s.whyNotCovered(&v1alpha1.Scanner{Spec: v1alpha1.ScannerSpec{ScanSettings: tt.settings}}, pod, pod.Spec.Containers[0])
		got := e.State + " " + e.Reason + " " + e.Message
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q; want %q in it", name, got, want)
			}
		}
	}
}

// TestWhyNotToReceiver: why an image's findings were not announced to a receiver.
func TestWhyNotToReceiver(t *testing.T) {
	delivered := v1alpha1.ReceiverStatus{Name: "team", LastDeliveryTime: &metav1.Time{Time: noon}, LastMessage: "2 new"}
	for name, tt := range map[string]struct {
		counts   v1alpha1.FindingCounts
		receiver v1alpha1.Receiver
		status   []v1alpha1.ReceiverStatus
		want     []string
	}{
		"below the threshold":   {v1alpha1.FindingCounts{Medium: 3}, v1alpha1.Receiver{MinSeverity: "High"}, []v1alpha1.ReceiverStatus{delivered}, []string{"UpToDate", "minSeverity is High, and none"}},
		"exploited below it":    {v1alpha1.FindingCounts{Medium: 3, KnownExploited: 1}, v1alpha1.Receiver{MinSeverity: "High"}, []v1alpha1.ReceiverStatus{delivered}, []string{"0 findings are of severity High or worse"}},
		"no findings":           {v1alpha1.FindingCounts{Suppressed: 1}, v1alpha1.Receiver{MinSeverity: "High"}, []v1alpha1.ReceiverStatus{delivered}, []string{"no findings that need action", "1 more is suppressed by an exception"}},
		"no message yet":        {v1alpha1.FindingCounts{High: 1}, v1alpha1.Receiver{MinSeverity: "High"}, nil, []string{"Waiting", "1 finding is of severity High", "no message was delivered"}},
		"waiting":               {v1alpha1.FindingCounts{High: 1}, v1alpha1.Receiver{MinSeverity: "High"}, []v1alpha1.ReceiverStatus{{Name: "team", Pending: 4, LastDeliveryTime: &metav1.Time{Time: noon}}}, []string{"Waiting", "4 findings wait"}},
		"refused":               {v1alpha1.FindingCounts{High: 1}, v1alpha1.Receiver{MinSeverity: "High"}, []v1alpha1.ReceiverStatus{{Name: "team", LastError: "invalid_token"}}, []string{"NotDelivered", "DeliveryFailed", "invalid_token"}},
		"only fixable":          {v1alpha1.FindingCounts{High: 2, Fixable: 1}, v1alpha1.Receiver{MinSeverity: "High", OnlyFixable: ptr.To(true)}, []v1alpha1.ReceiverStatus{delivered}, []string{"onlyFixable leaves out those without a fix; 1 of all"}},
		"only its workloads":    {v1alpha1.FindingCounts{High: 2}, v1alpha1.Receiver{MinSeverity: "High", Workloads: v1alpha1.WorkloadsOwn}, []v1alpha1.ReceiverStatus{delivered}, []string{v1alpha1.AnnotationReceiver}},
		"another one's message": {v1alpha1.FindingCounts{High: 2}, v1alpha1.Receiver{MinSeverity: "High"}, []v1alpha1.ReceiverStatus{{Name: "other", LastDeliveryTime: &metav1.Time{Time: noon}}}, []string{"no message was delivered"}},
	} {
		tt.receiver.Name = "team"
		scan := &v1alpha1.ImageScan{Status: v1alpha1.ImageScanStatus{Findings: &tt.counts}}
		e := whyNotToReceiver(scan, &v1alpha1.ScannerStatus{Receivers: tt.status}, tt.receiver)
		got := e.State + " " + e.Reason + " " + e.Message
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q; want %q in it", name, got, want)
			}
		}
	}
}

// TestGaps: no number of what is not covered is hidden.
func TestGaps(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace string
		list      restv1.Coverage
		want      []string
	}{
		"all is known":        {"shop", restv1.Coverage{Scanners: 1}, nil},
		"nothing is scanned":  {"shop", restv1.Coverage{AllNamespaces: true}, []string{"nothing is scanned in namespace shop"}},
		"other namespaces":    {"", restv1.Coverage{Scanners: 1}, []string{"there may be namespaces that you may not see"}},
		"all namespaces":      {"", restv1.Coverage{Scanners: 1, AllNamespaces: true}, nil},
		"pending":             {"shop", restv1.Coverage{Scanners: 1, NotCovered: restv1.NotCovered{Pending: 1}}, []string{"1 image has no result yet"}},
		"failed":              {"shop", restv1.Coverage{Scanners: 1, NotCovered: restv1.NotCovered{Failed: 2}}, []string{"2 images could not be scanned"}},
		"new":                 {"shop", restv1.Coverage{Scanners: 1, NotCovered: restv1.NotCovered{NewScanners: 1}}, []string{"1 Scanner is not counted yet"}},
		"stale":               {"shop", restv1.Coverage{Scanners: 1, NotCovered: restv1.NotCovered{StaleScanners: 1}}, []string{"1 Scanner has results that may be outdated"}},
		"not wholly analyzed": {"shop", restv1.Coverage{Scanners: 1, NotCovered: restv1.NotCovered{PartlyAnalysed: 3, Ecosystems: []string{"debian 12", "Go"}}}, []string{"3 images are not completely analyzed: debian 12, Go"}},
	} {
		if got := gapsOf(tt.namespace, tt.list); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestGapsOfResources: a ClusterScanner's images that have no ImageScan are not known from resources, and nothing is scanned without a scanner.
func TestGapsOfResources(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := fakeclient.NewClientBuilder().WithScheme(scheme).Build()
	of := func(phase v1alpha1.ImageScanPhase, notCovered ...string) v1alpha1.ImageScan {
		return v1alpha1.ImageScan{
			Spec:   v1alpha1.ImageScanSpec{ScannerRef: v1alpha1.ScannerReference{Kind: v1alpha1.KindClusterScanner, Name: "platform"}},
			Status: v1alpha1.ImageScanStatus{Phase: phase, NotCovered: notCovered},
		}
	}
	unused := of(v1alpha1.PhaseFailed)
	unused.Status.UnusedSinceTime = &metav1.Time{Time: noon}
	const unlisted = "ClusterScanner platform may cover images that have no ImageScan yet"
	for name, tt := range map[string]struct {
		scans []v1alpha1.ImageScan
		want  []string
	}{
		"no scanner":  {nil, []string{"nothing is scanned in namespace shop"}},
		"all scanned": {[]v1alpha1.ImageScan{of(v1alpha1.PhaseScanned), unused}, []string{unlisted}},
		"others": {
			[]v1alpha1.ImageScan{of(v1alpha1.PhaseFailed), of(v1alpha1.PhaseMatching), of(""), of(v1alpha1.PhaseScanned, "Go")},
			[]string{"2 images have no result yet", "1 image could not be scanned", "1 image is not completely analyzed: Go", unlisted},
		},
	} {
		got, err := gapsOfResources(context.Background(), cluster, "shop", tt.scans)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tt.want)
		}
	}
	suspended := &v1alpha1.Scanner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "main"}, Spec: v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Suspend: ptr.To(true)}}}
	suspended.Status.ObservedGeneration = 1
	if err := cluster.Create(context.Background(), suspended); err != nil {
		t.Fatal(err)
	}
	got, err := gapsOfResources(context.Background(), cluster, "shop", nil)
	if want := []string{"1 Scanner has results that may be outdated"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("a suspended Scanner: %q, %v; want %q", got, err, want)
	}
}

// TestVerdict: which findings --fail-on matches, and that an incomplete result is never a pass.
func TestVerdict(t *testing.T) {
	high := imageFinding{Finding: restv1.Finding{Severity: restv1.SeverityHigh}}
	exploited := imageFinding{Finding: restv1.Finding{Severity: restv1.SeverityLow, KnownExploited: true}}
	unknown := imageFinding{Finding: restv1.Finding{Severity: restv1.SeverityUnknown}}
	suppressed := imageFinding{Finding: restv1.Finding{Severity: restv1.SeverityCritical, KnownExploited: true, Exception: &restv1.Exception{}}}
	for _, tt := range []struct {
		failOn string
		found  []imageFinding
		gaps   []string
		want   string // a part of the error
	}{
		{"", []imageFinding{high}, []string{"x"}, ""},
		{"high", []imageFinding{high, exploited}, nil, "1 finding matches"},
		{"Critical", []imageFinding{high, exploited}, nil, ""},
		{"exploited", []imageFinding{high, exploited}, nil, "1 finding matches"},
		{"any", []imageFinding{high, unknown}, nil, "2 findings match"},
		{"Low", []imageFinding{unknown}, nil, ""},
		{"any", []imageFinding{suppressed}, nil, ""},
		{"any", nil, []string{"1 image has no result yet"}, "not everything is known: 1 image"},
		{"any", []imageFinding{high}, []string{"1 image has no result yet"}, "1 finding matches"},
	} {
		s := App{}.newSession()
		s.failOn = tt.failOn
		if err := s.verdict(tt.found, tt.gaps); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("--fail-on=%s: %v, want %q", tt.failOn, err, tt.want)
		}
	}
}

// TestTopResults: an image whose result is not complete is not shown as one without findings.
func TestTopResults(t *testing.T) {
	for name, tt := range map[string]struct {
		status v1alpha1.ImageScanStatus
		want   string
	}{
		"complete":     {v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseScanned, Findings: &v1alpha1.FindingCounts{}}, ""},
		"no result":    {v1alpha1.ImageScanStatus{Phase: v1alpha1.PhasePending}, "there is no result of shop/web:1 (Pending)"},
		"not listed":   {v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseScanned, Findings: &v1alpha1.FindingCounts{High: 2}}, "2 findings are not in the ImageScan"},
		"failed":       {v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseFailed, Findings: &v1alpha1.FindingCounts{}}, "the last attempt to scan shop/web:1 failed, and the findings are those of an earlier one"},
		"not analyzed": {v1alpha1.ImageScanStatus{Phase: v1alpha1.PhaseScanned, Findings: &v1alpha1.FindingCounts{}, NotCovered: []string{"Go"}}, "the result of shop/web:1 does not cover Go"},
	} {
		tt.status.Image = "shop/web:1"
		if got := topResults([]v1alpha1.ImageScan{{Status: tt.status}})[0].notKnown; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestCollectNewImages: findings in an image that was not there when the images were listed are not left out.
func TestCollectNewImages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(restv1.RunningFindingList{Items: []restv1.RunningFinding{{
			Namespace: "shop", ImageScan: "new", Image: "ghcr.io/shop/new:1", Digest: digest("new"), Workloads: []string{"Deployment/new"}, Engine: "grype",
			Finding: restv1.Finding{ID: "CVE-1", Severity: restv1.SeverityCritical},
		}}})
	}))
	defer server.Close()
	client, err := restclient.NewClientWithResponses(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	found, err := collect(t.Context(), &connect.Connection{ClientWithResponses: client}, nil, restv1.ListRunningFindingsParams{})
	if err != nil || len(found) != 1 || found[0].Image != "ghcr.io/shop/new:1" || found[0].Digest != digest("new") || !slices.Equal(found[0].Workloads, []string{"Deployment/new"}) {
		t.Errorf("%+v, %v; want the finding in the new image", found, err)
	}
}

// TestUntil: a day is included, and the past is refused.
func TestUntil(t *testing.T) {
	for text, want := range map[string]string{
		"2026-03-01": "2026-03-02T00:00:00Z", "2027-01-31": "2027-02-01T00:00:00Z", "2027-01-31T12:00:00+02:00": "2027-01-31T10:00:00Z", "30d": "2026-03-31T12:00:00Z", "12h": "2026-03-02T00:00:00Z",
		"2026-02-28": "", "0d": "", "-1h": "", "99999d": "", "d": "", "tomorrow": "",
	} {
		got, err := parseUntil(text, noon)
		if (err == nil) != (want != "") || err == nil && got.Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

// TestMerge: a finding of two engines is listed once, with the worse of the two and both engines.
func TestMerge(t *testing.T) {
	scan := &v1alpha1.ImageScan{Spec: v1alpha1.ImageScanSpec{Digest: "sha256:1", Platform: "linux/amd64"}}
	of := func(severity restv1.Severity, version string) restv1.Finding {
		return restv1.Finding{ID: "CVE-1", Severity: severity, Package: restv1.Package{Name: "openssl", Version: version, Type: "deb"}}
	}
	merged := map[string]*imageFinding{}
	merge(merged, scan, "grype", of(restv1.SeverityLow, "1"))
	merge(merged, scan, "clair https://clair", of(restv1.SeverityHigh, "1"))
	merge(merged, scan, "grype", of(restv1.SeverityLow, "2"))
	var found []string
	for _, f := range merged {
		found = append(found, f.Finding.Package.Version+" "+string(f.Finding.Severity)+" "+strings.Join(f.Engines, ","))
	}
	slices.Sort(found)
	if want := []string{"1 High clair https://clair,grype", "2 Low grype"}; !slices.Equal(found, want) {
		t.Errorf("%q, want %q", found, want)
	}
}

// TestActionsFailOn: all findings that an action ends count for --fail-on, also those that a response does not list.
func TestActionsFailOn(t *testing.T) {
	updates := []packageUpdate{
		{Action: restv1.Action{KnownExploited: 1, Critical: 70, High: 3, Ends: []restv1.EndedFinding{{ID: "CVE-1", Severity: restv1.SeverityCritical, KnownExploited: true}}}},
		{Action: restv1.Action{KnownExploited: 1, Other: 1, Ends: []restv1.EndedFinding{{ID: "CVE-2", Severity: restv1.SeverityLow, KnownExploited: true}}}},
	}
	for failOn, want := range map[string]int{failOnExploited: 2, failOnAny: 74, "Critical": 70, "High": 73, "Medium": 73, "Low": 74, "critical": 70, "HIGH": 73} {
		s := &session{failOn: failOn}
		if err := s.checkFailOn(); err != nil {
			t.Fatal(err)
		}
		if got := s.countActions(updates); got != want {
			t.Errorf("--fail-on=%s: %d findings, want %d", failOn, got, want)
		}
	}
	if slices.SortFunc(updates, moreUrgent); updates[0].Critical != 70 {
		t.Errorf("the first action is %+v, want that with Critical findings", updates[0])
	}
	if got := vulnerabilitiesText(updates[0].Action); got != "CVE-1 and 72 more" {
		t.Errorf("the vulnerabilities are %q", got)
	}
}

// TestSelectScans: the most exact meaning of a word decides.
func TestSelectScans(t *testing.T) {
	of := func(name, digest string, workloads []string, references ...string) v1alpha1.ImageScan {
		return v1alpha1.ImageScan{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ImageScanSpec{Digest: digest, References: references},
			Status: v1alpha1.ImageScanStatus{Workloads: workloads, Image: "short/" + name},
		}
	}
	scans := []v1alpha1.ImageScan{
		of("a", "sha256:a", []string{"Deployment/web"}, "ghcr.io/shop/web:1"), of("b", "sha256:b", []string{"CronJob/web"}, "ghcr.io/shop/b:1", "ghcr.io/shop/a:1"),
		of("c", "sha256:c", nil, "ghcr.io/shop/web:1.4"),
	}
	for word, want := range map[string]string{
		"a": "a", "sha256:b": "b", "ghcr.io/shop/web:1": "a", "short/c": "c", "Deployment/web": "a", "deployment/web": "a", "web": "ab", "shop/web": "ac", "shop": "abc", "none": "",
	} {
		selected, err := selectScans(scans, word)
		got := ""
		for _, s := range selected {
			got += s.Name
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q means %q, %v; want %q", word, got, err, want)
		}
	}
}

// TestStateCells: what the operator has not read yet is not known, and is not 0.
func TestStateCells(t *testing.T) {
	s := App{Clock: clocktesting.NewFakePassiveClock(noon)}.newSession()
	built := func(before time.Duration) *v1alpha1.VulnerabilityData {
		return &v1alpha1.VulnerabilityData{BuildTime: metav1.NewTime(noon.Add(-before))}
	}
	for name, tt := range map[string]struct {
		status v1alpha1.ScannerStatus
		want   string
	}{
		"new":          {v1alpha1.ScannerStatus{}, "||||||||||||Unknown|"},
		"by defaults":  {v1alpha1.ScannerStatus{Columns: v1alpha1.ScannerColumns{Images: "-", Critical: "-", Messages: "-", DataAge: "-"}}, "||||||||||||Unknown|"},
		"without data": {v1alpha1.ScannerStatus{VulnerabilityData: &v1alpha1.VulnerabilityData{}, Columns: v1alpha1.ScannerColumns{Messages: "None"}}, "||||||||||None||Unknown|"},
		"counted":      {v1alpha1.ScannerStatus{VulnerabilityData: built(6 * time.Hour), Columns: v1alpha1.ScannerColumns{Images: "0", Messages: "Failing"}}, "0|0|0|0|0||||||Failing|6h|Unknown|"},
		"none found":   {v1alpha1.ScannerStatus{VulnerabilityData: built(-time.Hour), Columns: v1alpha1.ScannerColumns{Images: "0", Critical: "0", Messages: "Delivered"}}, "0|0|0|0|0|0|0|0|0|0|Delivered|0s|Unknown|"},
	} {
		state := stateOf(v1alpha1.KindScanner, &v1alpha1.Scanner{}, &v1alpha1.ScanSettings{}, &tt.status)
		if got := strings.Join(s.stateCells(state)[2:], "|"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
