package restapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// operations implements the generated interface.
type operations struct{ *API }

var _ restv1.StrictServerInterface = operations{}

// scannerPosition is the position of a page of Scanners: the last Scanner before the page.
type scannerPosition struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ListScanners implements restv1.StrictServerInterface.
func (a operations) ListScanners(ctx context.Context, r restv1.ListScannersRequestObject) (restv1.ListScannersResponseObject, error) {
	all, seen, err := a.listWithVisibility(ctx, resourceScanners, ptr.Deref(r.Params.Namespace, ""))
	if err != nil {
		return nil, err
	}
	visible := slices.DeleteFunc(all, func(s v1alpha1.Scanner) bool { return !seen.includes(s.Namespace) })
	slices.SortFunc(visible, func(x, y v1alpha1.Scanner) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	var after scannerPosition
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	// The position is a name, not a number: Scanners that are created or deleted in the meantime move no other Scanner to another page.
	rest := slices.IndexFunc(visible, func(s v1alpha1.Scanner) bool {
		return cmp.Or(cmp.Compare(s.Namespace, after.Namespace), cmp.Compare(s.Name, after.Name)) > 0
	})
	answer := restv1.ListScanners200JSONResponse{Items: []restv1.Scanner{}, Total: len(visible), AllNamespaces: seen.all}
	if rest < 0 {
		return answer, nil
	}
	page := visible[rest:]
	if limit := limitOf(r.Params.Limit); len(page) > limit {
		page = page[:limit]
		last := page[limit-1]
		if answer.Continue, err = encodeContinue(ctx, scannerPosition{Namespace: last.Namespace, Name: last.Name}); err != nil {
			return nil, err
		}
	}
	for i := range page {
		answer.Items = append(answer.Items, a.scannerOf(&page[i]))
	}
	return answer, nil
}

// listWithVisibility returns all Scanners of one namespace, or of all namespaces, and in which of their namespaces, or of those in others, the
// caller may list a resource. The Scanners are not filtered.
func (a operations) listWithVisibility(ctx context.Context, resource, namespace string, others ...string) ([]v1alpha1.Scanner, visibility, error) {
	user := callerOf(ctx).user
	if namespace != "" {
		if err := a.authorizer.requireAccess(ctx, user, verbList, resource, namespace, ""); err != nil {
			return nil, visibility{}, err
		}
	}
	var all v1alpha1.ScannerList
	if err := a.Reader.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, visibility{}, fmt.Errorf("listing Scanners: %w", err)
	}
	if namespace != "" {
		return all.Items, visibility{namespaces: []string{namespace}}, nil
	}
	seen, err := a.authorizer.visibleNamespaces(ctx, user, resource, sortedNamespaces(all.Items, others))
	return all.Items, seen, err
}

// sortedNamespaces returns the namespaces of Scanners, and others.
func sortedNamespaces(scanners []v1alpha1.Scanner, others []string) []string {
	namespaces := slices.Clone(others)
	for i := range scanners {
		namespaces = append(namespaces, scanners[i].Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// GetScanner implements restv1.StrictServerInterface.
func (a operations) GetScanner(ctx context.Context, r restv1.GetScannerRequestObject) (restv1.GetScannerResponseObject, error) {
	var scanner v1alpha1.Scanner
	if err := a.getObject(ctx, resourceScanners, r.Namespace, r.Name, &scanner); err != nil {
		return nil, err
	}
	return restv1.GetScanner200JSONResponse(a.scannerOf(&scanner)), nil
}

// getObject gets an object if the caller may get it.
func (a operations) getObject(ctx context.Context, resource, namespace, name string, into client.Object) error {
	if err := a.authorizer.requireAccess(ctx, callerOf(ctx).user, verbGet, resource, namespace, name); err != nil {
		return err
	}
	return a.readObject(ctx, resource, namespace, name, into)
}

// readObject gets an object for a caller with a permission for it.
func (a operations) readObject(ctx context.Context, resource, namespace, name string, into client.Object) error {
	err := a.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading %s %s/%s: %w", resource, namespace, name, err)
	}
	if err != nil && resource == resourceClusterScanners {
		return newProblem(restv1.ReasonNotFound, "there is no %s.%s %q", strings.TrimSuffix(resource, "s"), v1alpha1.GroupVersion.Group, name)
	}
	if err != nil {
		return newProblem(restv1.ReasonNotFound, "there is no %s.%s %q in namespace %s", strings.TrimSuffix(resource, "s"), v1alpha1.GroupVersion.Group, name, namespace)
	}
	return nil
}

// ListImageScans implements restv1.StrictServerInterface.
func (a operations) ListImageScans(ctx context.Context, r restv1.ListImageScansRequestObject) (restv1.ListImageScansResponseObject, error) {
	if err := a.authorizer.requireAccess(ctx, callerOf(ctx).user, verbList, resourceImageScans, r.Namespace, ""); err != nil {
		return nil, err
	}
	var after scanPosition
	if err := decodeContinue(ctx, r.Params.Continue, &after); err != nil {
		return nil, err
	}
	passing, err := a.passingScans(ctx, r.Namespace, r.Params)
	if err != nil {
		return nil, err
	}
	answer := restv1.ListImageScans200JSONResponse{Items: []restv1.ImageScan{}, Total: len(passing)}
	last := after
	for _, scan := range passing {
		at := positionOfScan(scan)
		if at.Unused {
			answer.NotRunning++
		}
		if at.compare(after) <= 0 || answer.Continue != "" {
			continue
		}
		if len(answer.Items) == limitOf(r.Params.Limit) {
			if answer.Continue, err = encodeContinue(ctx, last); err != nil {
				return nil, err
			}
			continue
		}
		answer.Items, last = append(answer.Items, imageScanOf(scan)), at
	}
	return answer, nil
}

// scanPosition is a position in a list of ImageScans: the last one before it. The zero value is the beginning. Images that no pod runs come last.
type scanPosition struct {
	Unused bool   `json:"unused,omitempty"`
	Name   string `json:"name"`
}

func positionOfScan(scan *v1alpha1.ImageScan) scanPosition {
	return scanPosition{Unused: scan.Status.UnusedSinceTime != nil, Name: scan.Name}
}

func (p scanPosition) compare(other scanPosition) int {
	if p.Unused != other.Unused {
		if p.Unused {
			return 1
		}
		return -1
	}
	return cmp.Compare(p.Name, other.Name)
}

// passingScans returns the ImageScans of a namespace that pass the parameters: those of images that run, and then the others, each by name.
func (a operations) passingScans(ctx context.Context, namespace string, p restv1.ListImageScansParams) (passing []*v1alpha1.ImageScan, err error) {
	var all v1alpha1.ImageScanList
	if err := a.Reader.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ImageScans: %w", err)
	}
	for i := range all.Items {
		scan := &all.Items[i]
		owner := ownerOf(scan)
		if ptr.Deref(p.Scanner, owner.Name) == owner.Name && ptr.Deref(p.ScannerKind, owner.Kind) == owner.Kind && ptr.Deref(p.Phase, phaseOf(scan)) == phaseOf(scan) {
			passing = append(passing, scan)
		}
	}
	slices.SortFunc(passing, func(x, y *v1alpha1.ImageScan) int { return positionOfScan(x).compare(positionOfScan(y)) })
	return passing, nil
}

// GetImageScan implements restv1.StrictServerInterface.
func (a operations) GetImageScan(ctx context.Context, r restv1.GetImageScanRequestObject) (restv1.GetImageScanResponseObject, error) {
	var scan v1alpha1.ImageScan
	if err := a.getObject(ctx, resourceImageScans, r.Namespace, r.Name, &scan); err != nil {
		return nil, err
	}
	answer := imageScanOf(&scan)
	var err error
	if answer.SBOMFormats, err = a.sbomFormatsOf(ctx, &scan); err != nil {
		return nil, err
	}
	answer.MayRescan, err = a.authorizer.isAllowed(ctx, callerOf(ctx).user, verbDelete, resourceImageScans, r.Namespace, r.Name)
	return restv1.GetImageScan200JSONResponse(answer), err
}

// scannerOf converts a Scanner for a response. It leaves out what only kubectl users and the operator need: the specification, the store
// and the receivers.
func (a operations) scannerOf(s *v1alpha1.Scanner) restv1.Scanner {
	return restv1.Scanner{
		Namespace: s.Namespace, Name: s.Name, Engine: string(s.Spec.Backend.Type), Suspended: ptr.Deref(s.Spec.Suspend, false),
		Images: imageCountsOf(s.Status.Images), Findings: countsOf(s.Status.Findings), Conditions: conditionsOf(s.Status.Conditions),
		VulnerabilityData: a.dataOf(s.Status.VulnerabilityData), Problems: problemsOf(&s.Status, s.Spec.Suspend),
	}
}

func imageCountsOf(c v1alpha1.ImageCounts) restv1.ImageCounts {
	return restv1.ImageCounts{
		Total: int(c.Total), Scanned: int(c.Scanned), Pending: int(c.Pending),
		Failed: int(c.Failed), Excluded: int(c.Excluded), RecentlyUsed: int(c.RecentlyUsed),
	}
}

// dataOf returns the vulnerability data in use; zero, which a response omits, if there is none.
func (a operations) dataOf(data *v1alpha1.VulnerabilityData) restv1.VulnerabilityData {
	if data == nil {
		return restv1.VulnerabilityData{}
	}
	return restv1.VulnerabilityData{
		BuildTime: data.BuildTime.UTC(), AgeSeconds: max(0, int64(a.Clock.Since(data.BuildTime.Time).Seconds())), Tool: data.Tool,
	}
}

func countsOf(c v1alpha1.FindingCounts) restv1.FindingCounts {
	return restv1.FindingCounts{
		Critical: int(c.Critical), High: int(c.High), Medium: int(c.Medium), Low: int(c.Low), Negligible: int(c.Negligible),
		Unknown: int(c.Unknown), Fixable: int(c.Fixable), KnownExploited: int(c.KnownExploited), Suppressed: int(c.Suppressed),
	}
}

func conditionsOf(conditions []metav1.Condition) []restv1.Condition {
	all := []restv1.Condition{}
	for _, c := range conditions {
		all = append(all, restv1.Condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime.UTC(),
		})
	}
	return all
}

// phaseOf returns the phase of an ImageScan. It is Pending until the operator has set one.
func phaseOf(scan *v1alpha1.ImageScan) restv1.Phase {
	return restv1.Phase(cmp.Or(scan.Status.Phase, v1alpha1.PhasePending))
}

// ownerOf returns the Scanner or ClusterScanner that an ImageScan belongs to.
func ownerOf(scan *v1alpha1.ImageScan) restv1.ScannerReference {
	owner := scan.Spec.ScannerRef
	return restv1.ScannerReference{Kind: restv1.ScannerKind(cmp.Or(owner.Kind, v1alpha1.KindScanner)), Name: owner.Name}
}

func imageScanOf(s *v1alpha1.ImageScan) restv1.ImageScan {
	status := &s.Status
	scan := restv1.ImageScan{
		Namespace: s.Namespace, Name: s.Name, Scanner: ownerOf(s), Digest: s.Spec.Digest, Platform: s.Spec.Platform,
		PlatformDigest: status.PlatformDigest, References: s.Spec.References, Engine: string(status.Engine), Phase: phaseOf(s),
		Workloads: status.Workloads, WorkloadCount: int(status.WorkloadCount), Attempts: int(status.Attempts),
		NotCovered: status.NotCovered, SBOM: sbomOriginOf(status.SBOM), Conditions: conditionsOf(status.Conditions),
	}
	if status.Findings != nil {
		counts := countsOf(*status.Findings)
		scan.Findings = &counts
	}
	if status.ScanTime != nil {
		scan.ScanTime = status.ScanTime.UTC()
	}
	if status.UnusedSinceTime != nil {
		scan.UnusedSinceTime = status.UnusedSinceTime.UTC()
	}
	if status.NextAttemptTime != nil {
		scan.NextAttemptTime = status.NextAttemptTime.UTC()
	}
	return scan
}
