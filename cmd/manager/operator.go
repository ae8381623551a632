package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/certificate"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/election"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
	"github.com/scanner-operator/scanner-operator/pkg/pods"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/relay"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// operator is the complete process with all its components.
type operator struct {
	options   options
	config    config.Config
	clock     clock.WithTicker
	manager   manager.Manager
	store     *store.Store
	authority *certificate.Authority
	// deliveries keeps the number of deliveries outside the store's volume, where no snapshot of the volume includes it.
	deliveries *preflight.DeliveryCounter
	wakeups    *controllers.Wakeups
	leadership *leadership
	// lease has the times of the Lease, and identity is that of this process in it.
	lease       election.Times
	identity    string
	relay       *relay.Relay
	servers     *servers
	permissions *preflight.Checker
	crds        preflight.CRDWatcher
	grype       *grype.Backend
	clairs      *clair.Engines
	backends    backend.Choosers
	// loops, requests and controllerMetrics are metrics that all components share.
	loops             *metrics.Loops
	requests          *metrics.Requests
	controllerMetrics *controllers.Metrics
}

func newOperator(ctx context.Context, o options) (*operator, error) {
	settings, err := config.Load(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	// A server has no lock against a second manager that works while PgBouncer may be in between (store.Server): the Lease alone keeps it out.
	if settings.Store.Type != config.SQLite && !o.LeaderElect {
		return nil, fmt.Errorf("--leader-elect=false: needs store.type SQLite, not %s: only the lease keeps a second manager from writing to the same server", settings.Store.Type)
	}
	lease, err := o.leaseTimes(settings.Store.Type)
	if err != nil {
		return nil, err
	}
	op := &operator{options: o, config: settings, lease: lease, clock: clock.RealClock{}, wakeups: &controllers.Wakeups{}, leadership: newLeadership(), servers: newServers()}
	op.loops, op.requests, op.controllerMetrics = metrics.NewLoops(ctrlmetrics.Registry), metrics.NewRequests(ctrlmetrics.Registry), controllers.NewMetrics(ctrlmetrics.Registry)
	op.controllerMetrics.LimitImages(settings.Metrics.MaxImages)
	metrics.RegisterManagerBuild(ctrlmetrics.Registry, version.Version)
	metrics.RegisterCluster(ctrlmetrics.Registry, op.config.ClusterName)
	// This comes before the manager, which listens on the same probe address. While OpenStore waits, it answers the probes itself.
	err = whileNotUpgradeable(ctx, "OpeningStore", preflight.OpeningStore, func() (err error) {
		op.store, err = preflight.OpenStore(ctx, op.openStore, o.ProbeAddress, ctrl.Log)
		return err
	})
	if err != nil {
		return nil, err
	}
	op.store.Follow() // until this process is elected
	op.identity = op.holderIdentity()
	op.store.LimitRecords(settings.Ingest.StoreSizePerNamespace.Value())
	direct, err := directClient()
	if err != nil {
		return nil, err
	}
	if err := op.waitForCRDs(ctx, direct); err != nil {
		return nil, err
	}
	if err := op.storeVolume(direct).Wait(ctx, op.store.ID(), o.ProbeAddress); err != nil {
		return nil, fmt.Errorf("looking where the store is: %w", err)
	}
	ctrlmetrics.Registry.MustRegister(op.store)
	made, err := op.newManager(func(namespace string) { op.permissions.RequestCheck(namespace) })
	if err != nil {
		return nil, err
	}
	op.manager = leadingManager{made, op}
	op.deliveries = &preflight.DeliveryCounter{Client: direct, Namespace: o.Namespace, Store: op.store}
	op.relay = &relay.Relay{Store: op.store, Leads: op.leadership.leads, Log: ctrl.Log.WithName("relay")}
	op.relay.Handle(noticeImage, func(ctx context.Context, digest, _ string) { op.wakeups.Image(ctx, digest) })
	op.relay.Handle(noticeData, func(ctx context.Context, _, _ string) { op.enqueueScanners(ctx) })
	op.authority = &certificate.Authority{
		Client: direct, Reader: direct, Clock: op.clock, Namespace: o.Namespace, Secret: authoritySecret,
	}
	if err := op.refreshCertificates(ctx); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	if err := op.setupBackends(); err != nil {
		return nil, err
	}
	for _, setup := range []func(context.Context) error{op.addPermissionChecker, op.addIngest, op.addAPI, op.addControllers, op.addLoops, op.addChecks, op.addMetrics} {
		if err := setup(ctx); err != nil {
			return nil, err
		}
	}
	return op, nil
}

// directClient returns a client that reads from the API server, without a cache.
func directClient() (ctrlclient.Client, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	return ctrlclient.New(config, ctrlclient.Options{Scheme: newScheme()})
}

func (op *operator) storeLocation() storeLocation {
	return storeLocation{dataDir: op.options.DataDir, settings: op.config.Store}
}

// openStore opens the store for this process. A manager that waits for its lease has the store open, too.
func (op *operator) openStore(ctx context.Context) (*store.Store, error) {
	return op.storeLocation().open(ctx, ctrl.Log)
}

// storeVolume returns the check of the volume that the store is on.
func (op *operator) storeVolume(reader ctrlclient.Reader) preflight.StoreVolume {
	o := op.options
	return preflight.StoreVolume{
		Reader: reader, Namespace: o.Namespace, PodName: o.PodName, DataDir: o.DataDir, OnServer: !op.storeLocation().isFile(),
		Namespaces: o.namespaces(), Log: ctrl.Log,
	}
}

// Kinds of notices for the leader (package relay).
const (
	noticeImage = "image" // subject: the digest of an image of which something is known anew
	noticeData  = "data"  // the vulnerability data have changed
)

// wakeImage has the leader look at an image again.
func (op *operator) wakeImage(ctx context.Context, digest string) {
	op.relay.Send(ctx, noticeImage, digest, "")
}

// dataChanged has the leader look at all Scanners again.
func (op *operator) dataChanged(ctx context.Context) { op.relay.Send(ctx, noticeData, "", "") }

// run runs the manager and the servers until the context ends, and then closes the store. The servers end last, so that no request fails because
// this replica of several goes.
func (op *operator) run(ctx context.Context) error {
	defer func() {
		if err := op.store.Close(); err != nil {
			ctrl.Log.Error(err, "Closing the store")
		}
	}()
	ended := make(chan error, 1)
	go func() {
		err := op.manager.Start(ctx)
		op.leadership.ended.Store(true)
		ended <- err
	}()
	serving := make(chan error, 1)
	select {
	case err := <-ended:
		return err
	case <-op.mayServe():
		go func() { serving <- op.servers.serve() }()
	}
	var err error
	select {
	case err = <-serving: // a listener has failed
		return err
	case err = <-ended:
		op.servers.drain(op.servesWhileFollowing())
	case <-ctx.Done():
		op.servers.drain(op.servesWhileFollowing())
		err = <-ended
	}
	return errors.Join(err, <-serving)
}

// servesWhileFollowing reports whether this process serves requests although another one leads.
func (op *operator) servesWhileFollowing() bool { return !op.storeLocation().isFile() }

// mayServe returns a channel that is closed when this process may serve requests.
func (op *operator) mayServe() <-chan struct{} {
	if op.servesWhileFollowing() {
		return op.servers.cached
	}
	return op.leadership.led
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(reports.Install(scheme))
	return scheme
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=system,resources=leases,resourceNames=scanner-operator-manager,verbs=get;update

// newManager returns a manager without controllers. It calls forbidden with the namespace of each request that is refused for a lack of
// permissions.
func (op *operator) newManager(forbidden func(namespace string)) (manager.Manager, error) {
	o, config := op.options, ctrl.GetConfigOrDie()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return preflight.ObserveForbidden(next, forbidden) })
	lock, err := election.NewLock(config, o.Namespace, managerName, op.identity)
	if err != nil {
		return nil, err
	}
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:   newScheme(),
		NewCache: pods.NewCache(inventory.StripPod),
		Cache: cache.Options{
			DefaultNamespaces: o.cacheNamespaces(),
			NewInformer:       preflight.NewInformer,
			ByObject: map[ctrlclient.Object]cache.ByObject{
				&corev1.Node{}:      {Transform: inventory.StripNode},
				&corev1.Namespace{}: {Transform: inventory.StripNamespace}, // only their metadata is watched
			},
		},
		// Secrets, ConfigMaps and PersistentVolumeClaims are read one by one where they are needed. They are not watched.
		Client: ctrlclient.Options{Cache: &ctrlclient.CacheOptions{DisableFor: []ctrlclient.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.PersistentVolumeClaim{},
		}}},
		// Both have servers of their own (probes.go).
		Metrics:                             metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:              "0",
		LeaderElection:                      o.LeaderElect,
		LeaderElectionID:                    managerName, // the name in the metrics
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &op.lease.LeaseDuration,
		RenewDeadline:                       &op.lease.RenewDeadline,
		RetryPeriod:                         &op.lease.RetryPeriod,
	})
}

func (op *operator) refreshCertificates(ctx context.Context) error {
	if err := op.authority.Refresh(ctx); err != nil {
		return err
	}
	if err := op.authority.PublishBundle(ctx, authorityBundle); err != nil {
		return err
	}
	return op.authority.PublishServing(ctx, notifierSecret, op.options.notifierDNSNames()...)
}

// addChecks adds the health checks. The process is always alive. It is ready while it serves requests.
func (op *operator) addChecks(ctx context.Context) error {
	if err := op.manager.Add(everywhere(func(ctx context.Context) error {
		close(op.servers.cached)
		op.logStandby(ctx)
		return nil
	})); err != nil {
		return err
	}
	// Whoever asks sees the name of the check only.
	name := "leading"
	if op.servesWhileFollowing() {
		name = "cached"
	}
	return op.addProbes(ctx, name, func(*http.Request) error {
		select {
		case <-op.mayServe():
			return nil
		default:
			return errors.New("this replica does not serve requests yet")
		}
	})
}

// detectRollback detects a store whose volume was rolled back to an earlier state, and has it treated as restored. It must run before
// anything else uses the store. Without permission to use the ConfigMap, it only logs: the operator works, and a rollback stays undetected.
func (op *operator) detectRollback(ctx context.Context) error {
	before := op.store.ID()
	rolledBack, err := op.deliveries.Check(ctx)
	if rolledBack {
		ctrl.Log.Info("The store is older than the messages that were sent, or their number is missing: its volume or database was put back to an earlier state. "+
			"It is treated as restored",
			"configMap", preflight.DeliveriesConfigMap, "contentOf", op.store.RestoredFrom(), "id", op.store.ID(), "before", before)
	}
	if apierrors.IsForbidden(err) {
		ctrl.Log.Error(err, "A rollback of the store's volume would go unnoticed")
		return nil
	}
	return err
}
