package restapi

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// GetOperator implements restv1.StrictServerInterface.
func (a operations) GetOperator(ctx context.Context, _ restv1.GetOperatorRequestObject) (restv1.GetOperatorResponseObject, error) {
	user := callerOf(ctx).user
	allowed, err := a.authorizer.isAllowed(ctx, user, verbList, resourceScanners, "", "")
	if err != nil {
		return nil, err
	}
	if !allowed {
		return nil, newProblem(restv1.ReasonForbidden, "%s may not list scanners.%s in all namespaces: it needs a ClusterRoleBinding to a role that allows this, such as scanner-operator-view",
			user.Username, v1alpha1.GroupVersion.Group)
	}
	var status store.Status
	err = a.query(ctx, func(ctx context.Context) (err error) {
		status, err = a.Store.Status(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	answer := restv1.GetOperator200JSONResponse{Version: version.Version, Cluster: a.ClusterName, Engines: []restv1.Engine{}, Store: restv1.OperatorStore{
		Database: status.Database, SizeBytes: status.Size, Schema: status.Schema, Revision: status.Revision, Healthy: status.Fault == nil,
	}}
	if status.Fault != nil {
		answer.Store.Message = status.Fault.Error()
	}
	for _, e := range status.Engines {
		engine := restv1.Engine{
			Engine: engineNameOf(e.Engine), Tool: e.Data.Tool, DataVersion: e.Data.Version, BuildTime: utcOf(e.Data.Built), SinceTime: e.Data.Since.UTC(), Queue: e.Queue,
		}
		if !e.Data.Built.IsZero() {
			engine.AgeSeconds = max(0, int64(a.Clock.Since(e.Data.Built).Seconds()))
		}
		answer.Engines = append(answer.Engines, engine)
	}
	if answer.Scanners, answer.Images, err = a.countAllImages(ctx); err != nil {
		return nil, err
	}
	replicas, err := a.Replicas(ctx)
	if err != nil { // the rest of the answer does not need the API server
		a.Log.Error(err, "Looking for the manager's replicas")
	}
	answer.Replicas = append([]restv1.Replica{}, replicas...)
	return answer, nil
}

// countAllImages returns the number of Scanners and ClusterScanners, and the sum of their images.
func (a operations) countAllImages(ctx context.Context) (scanners int, sum restv1.ImageCounts, err error) {
	var own v1alpha1.ScannerList
	if err := a.Reader.List(ctx, &own, client.UnsafeDisableDeepCopy); err != nil {
		return 0, sum, fmt.Errorf("listing Scanners: %w", err)
	}
	clusterWide, err := inventory.ListClusterScanners(ctx, a.Reader)
	if err != nil {
		return 0, sum, fmt.Errorf("listing ClusterScanners: %w", err)
	}
	add := func(more restv1.ImageCounts) {
		sum.Total += more.Total
		sum.Scanned += more.Scanned
		sum.Pending += more.Pending
		sum.Failed += more.Failed
		sum.Excluded += more.Excluded
		sum.RecentlyUsed += more.RecentlyUsed
	}
	for i := range own.Items {
		add(imageCountsOf(own.Items[i].Status.Images))
	}
	for _, s := range clusterWide {
		add(imageCountsOf(s.Status.Images))
	}
	return len(own.Items) + len(clusterWide), sum, nil
}
