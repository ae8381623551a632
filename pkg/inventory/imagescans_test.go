package inventory

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	. "github.com/scanner-operator/scanner-operator/pkg/inventory/inventorytest"
)

// TestLookingUpAnImageScanReadsNoOthers: the cost of a lookup does not grow with the number of Scanners that have the image.
func TestLookingUpAnImageScanReadsNoOthers(t *testing.T) {
	var objects []client.Object
	for i := range 20 {
		scanner := TheScanner(func(s *v1alpha1.Scanner) { s.Name, s.UID = fmt.Sprint("scanner-", i), types.UID(fmt.Sprint("uid-", i)) })
		objects = append(objects, ImageScan(scanner, Web, func(s *v1alpha1.ImageScan) { s.Name = fmt.Sprint("web-", i) }))
	}
	mine := TheScanner()
	cluster := clusterOf(t, append(objects, mine, ImageScan(mine, Web))...)
	read := 0
	reader := interceptor.NewClient(cluster, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			read += len(list.(*v1alpha1.ImageScanList).Items)
			return err
		},
	})
	found, err := (&Inventory{Client: reader}).ImageScan(t.Context(), mine, mine.Namespace, KeyOfImage(Web))
	if err != nil || found == nil || read != 1 {
		t.Errorf("found %v (%v) after reading %d ImageScans, want its own after 1", found, err, read)
	}
}
