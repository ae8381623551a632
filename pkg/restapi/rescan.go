package restapi

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// RescanImage implements restv1.StrictServerInterface. The image's catalog is deleted in the credential scope that it counts in, and the
// ImageScan as "kubectl delete" does: the controller creates it again and scans the image. The report stays until the next one, so nothing is
// announced as fixed or new in between.
func (a operations) RescanImage(ctx context.Context, r restv1.RescanImageRequestObject) (restv1.RescanImageResponseObject, error) {
	user := callerOf(ctx).user
	if err := a.authorizer.requireAccess(ctx, user, verbDelete, resourceImageScans, r.Namespace, r.Name); err != nil {
		return nil, err
	}
	release, err := a.writes.acquire(ctx, user.Username)
	if err != nil {
		return nil, err
	}
	defer release()
	scan := &v1alpha1.ImageScan{}
	if err := a.readObject(ctx, resourceImageScans, r.Namespace, r.Name, scan); err != nil {
		return nil, err
	}
	// An image without a result has no catalog to delete.
	found, err := a.locateScan(ctx, scan)
	var refused *problem
	if err != nil && (!errors.As(err, &refused) || refused.Reason != restv1.ReasonNotScanned) {
		return nil, err
	}
	if found.PlatformDigest != "" {
		if err := a.Store.DeleteCatalogIn(ctx, found.Subject); err != nil {
			return nil, err
		}
	}
	uid := scan.UID
	err = a.ImageScans.Delete(ctx, scan, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // then it has been created again already
		return nil, fmt.Errorf("deleting ImageScan %s/%s: %w", r.Namespace, r.Name, err)
	}
	a.Log.Info("Scans an image again", "user", user.Username, "namespace", r.Namespace, "imagescan", r.Name)
	return restv1.RescanImage202Response{}, nil
}
