package restapi

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	restv1 "github.com/scanner-operator/scanner-operator/api/rest/v1"
	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/store"
)

// RescanImage implements restv1.StrictServerInterface. The Scanner that has the image catalogs it again, on behalf of the image's namespace, and the
// ImageScan is deleted as "kubectl delete" does: the controller creates it again and scans the image. The catalog and the report stay until the next
// ones, so nothing is announced as fixed or new in between, and other namespaces that run the image have their results.
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
	// An image without a result is cataloged anyway.
	found, err := a.locateScan(ctx, scan)
	var refused *problem
	if err != nil && (!errors.As(err, &refused) || refused.Reason != restv1.ReasonNotScanned) {
		return nil, err
	}
	if found.PlatformDigest != "" {
		err := a.Store.RequestRescan(ctx, store.ScannerImage{Scanner: string(found.scanner.GetUID()), Namespace: r.Namespace, Key: found.key})
		if errors.Is(err, store.ErrRescannedLately) {
			return nil, tooManyRequests(store.RescanInterval, "the image was scanned again less than 10 minutes ago, maybe for another namespace; this namespace has that result too")
		}
		if err != nil {
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
