package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// scannerName is the name of each Scanner, and of the ClusterScanner.
const scannerName = "scanner"

// withScanners is the operator with a Scanner in each namespace.
type withScanners struct {
	// dsn is the data source name of a store on PostgreSQL. If it is empty, the store is SQLite.
	dsn string
}

// Names of the operator on the page.
const (
	onSQLite     = "Scanner Operator, SQLite"
	onPostgreSQL = "Scanner Operator, PostgreSQL"
)

func (o withScanners) name() string {
	if o.dsn != "" {
		return onPostgreSQL
	}
	return onSQLite
}

func (o withScanners) start(ctx context.Context, c *cluster) (program, error) {
	var flags []string
	if o.dsn != "" {
		dsn, config := filepath.Join(c.dir, "dsn"), filepath.Join(c.dir, "config.yaml")
		if err := errors.Join(os.WriteFile(dsn, []byte(o.dsn+"\n"), 0o600),
			os.WriteFile(config, fmt.Appendf(nil, "store: {type: PostgreSQL, dsnFile: %s}\n", dsn), 0o600)); err != nil {
			return program{}, err
		}
		flags = append(flags, "--config", config)
	}
	err := c.startManager(ctx, flags...)
	return c.manager, err
}

func (withScanners) request(ctx context.Context, c *cluster) (began time.Time, err error) {
	began = time.Now()
	for i := range namespaces {
		if err := c.createScanner(ctx, namespaceName(i)); err != nil {
			return began, err
		}
	}
	return began, nil
}

func (c *cluster) createScanner(ctx context.Context, namespace string) error {
	return c.server.Create(ctx, &v1alpha1.Scanner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: scannerName},
		Spec:       v1alpha1.ScannerSpec{ScanSettings: v1alpha1.ScanSettings{Backend: v1alpha1.Backend{Type: v1alpha1.BackendGrype}}},
	})
}

func (withScanners) covered(ctx context.Context, c *cluster, _ int) error {
	var scanners v1alpha1.ScannerList
	if err := c.server.List(ctx, &scanners); err != nil {
		return err
	}
	for _, s := range scanners.Items {
		if counts := s.Status.Images; counts.Total != images || counts.Scanned != images {
			return fmt.Errorf("%s: %+v, expected %d images scanned", s.Namespace, counts, images)
		}
	}
	return nil
}

// indexed is the log line for each image that the fake backend indexes.
const indexed = `"msg":"` + fake.IndexedMessage + `"`

func (withScanners) scans(p program) int { return p.Logged(indexed) }

// imageScans is the prefix of ImageScans in etcd.
const imageScans = "/registry/scanner-operator.io/imagescans/"

func (withScanners) objects() string { return imageScans }

func (withScanners) remove(ctx context.Context, c *cluster, p program) error {
	for i := range namespaces {
		if err := c.server.DeleteAllOf(ctx, &v1alpha1.Scanner{}, client.InNamespace(namespaceName(i))); err != nil {
			return err
		}
	}
	return wait.Eventually(ctx, waitTimeout, wait.Normally, func(ctx context.Context) error {
		left, err := c.count(ctx, imageScans)
		if err != nil || left > 0 {
			return errors.Join(p.Alive(), err, fmt.Errorf("%d ImageScans are left", left))
		}
		annotated, err := c.annotated(ctx)
		if err != nil || annotated > 0 {
			return errors.Join(p.Alive(), err, fmt.Errorf("%d pods are annotated still", annotated))
		}
		return nil
	})
}

// annotated returns the number of pods with the annotation of the scanned images.
func (c *cluster) annotated(ctx context.Context) (int, error) {
	var pods metav1.PartialObjectMetadataList
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.server.List(ctx, &pods); err != nil {
		return 0, err
	}
	n := 0
	for _, pod := range pods.Items {
		for _, kind := range []string{"", "cluster."} {
			if pod.Annotations[scannerName+"."+kind+"scanner-operator.io/image-hashes"] != "" {
				n++
			}
		}
	}
	return n, nil
}
