package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/operator-framework/operator-lib/proxy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
	"github.com/scanner-operator/scanner-operator/controllers"
	"github.com/scanner-operator/scanner-operator/pkg/announce/client"
	"github.com/scanner-operator/scanner-operator/pkg/backend"
	"github.com/scanner-operator/scanner-operator/pkg/backend/clair"
	"github.com/scanner-operator/scanner-operator/pkg/backend/fake"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype"
	"github.com/scanner-operator/scanner-operator/pkg/backend/grype/ingest"
	"github.com/scanner-operator/scanner-operator/pkg/certificate"
	"github.com/scanner-operator/scanner-operator/pkg/config"
	"github.com/scanner-operator/scanner-operator/pkg/exception/active"
	"github.com/scanner-operator/scanner-operator/pkg/health"
	"github.com/scanner-operator/scanner-operator/pkg/inventory"
	"github.com/scanner-operator/scanner-operator/pkg/listener"
	"github.com/scanner-operator/scanner-operator/pkg/metrics"
	"github.com/scanner-operator/scanner-operator/pkg/preflight"
	"github.com/scanner-operator/scanner-operator/pkg/store"
	"github.com/scanner-operator/scanner-operator/registry"
	"github.com/scanner-operator/scanner-operator/workerapi/version"
)

// Timeouts and intervals.
const (
	listingTimeout       = 30 * time.Second
	headerTimeout        = 10 * time.Second
	certificateInterval  = time.Hour
	scannerSweepInterval = 30 * time.Second
	spoolSweepInterval   = time.Minute
	// idleTimeout closes connections that nobody uses. Workers keep one connection for several images.
	idleTimeout = 2 * time.Minute
	// maxConnections bounds the connections of workers. Each worker has one, and few work at the same time.
	maxConnections = 256
	// recordRetention is how long the store keeps records that no Scanner uses any more.
	recordRetention = 24 * time.Hour
)

// operator is the complete process with all its components.
type operator struct {
	options   options
	config    config.Config
	clock     clock.Clock
	manager   manager.Manager
	store     *store.Store
	authority *certificate.Authority
	// deliveries keeps the number of deliveries outside the store's volume, where no snapshot of the volume includes it.
	deliveries  *controllers.DeliveryCounter
	wakeups     *controllers.Wakeups
	permissions *preflight.Checker
	crds        preflight.CRDWatcher
	grype       *grype.Backend
	clairs      *clair.Engines
	backends    backend.Choosers
	// loops, requests and measures are metrics that all components share.
	loops             *metrics.Loops
	requests          *metrics.Requests
	controllerMetrics *controllers.Metrics
}

func newOperator(ctx context.Context, o options) (*operator, error) {
	settings, err := config.Load(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	op := &operator{options: o, config: settings, clock: clock.RealClock{}, wakeups: &controllers.Wakeups{}}
	op.loops, op.requests, op.controllerMetrics = metrics.NewLoops(ctrlmetrics.Registry), metrics.NewRequests(ctrlmetrics.Registry), controllers.NewMetrics(ctrlmetrics.Registry)
	metrics.RegisterManagerBuild(ctrlmetrics.Registry, version.Version)
	// This comes before the manager, which listens on the same probe address. While openStore waits, it answers the probes itself.
	err = whileNotUpgradeable(ctx, "OpeningStore", openingMessage, func() (err error) {
		op.store, err = openStore(ctx, o.storePath(), o.ProbeAddress)
		return err
	})
	if err != nil {
		return nil, err
	}
	op.store.LimitRecords(settings.Ingest.StoreSizePerNamespace.Value())
	direct, err := directClient()
	if err != nil {
		return nil, err
	}
	if err := op.waitForCRDs(ctx, direct); err != nil {
		return nil, err
	}
	if err := o.storeVolume(direct).Wait(ctx, op.store.ID(), o.ProbeAddress); err != nil {
		return nil, fmt.Errorf("looking where the store is: %w", err)
	}
	ctrlmetrics.Registry.MustRegister(op.store)
	if op.manager, err = newManager(o); err != nil {
		return nil, err
	}
	op.deliveries = &controllers.DeliveryCounter{Client: direct, Namespace: o.Namespace, Store: op.store}
	if err := op.detectRollback(ctx); err != nil {
		return nil, fmt.Errorf("comparing the store with what was delivered: %w", err)
	}
	op.authority = &certificate.Authority{
		Client: direct, Reader: direct, Clock: op.clock, Namespace: o.Namespace, Secret: authoritySecret,
	}
	if err := op.refreshCertificates(ctx); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	if err := op.setupBackends(); err != nil {
		return nil, err
	}
	for _, setup := range []func(context.Context) error{op.addPermissionChecker, op.addIngest, op.addAPI, op.addControllers, op.addLoops, op.addChecks} {
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

// storeVolume returns the check of the volume that the store is on.
func (o *options) storeVolume(reader ctrlclient.Reader) preflight.StoreVolume {
	return preflight.StoreVolume{
		Reader: reader, Namespace: o.Namespace, PodName: o.PodName, DataDir: o.DataDir, Namespaces: o.namespaces(), Log: ctrl.Log,
	}
}

// run runs the manager until the context ends, and then closes the store.
func (op *operator) run(ctx context.Context) error {
	defer func() {
		if err := op.store.Close(); err != nil {
			ctrl.Log.Error(err, "Closing the store")
		}
	}()
	return op.manager.Start(ctx)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// +kubebuilder:rbac:roleName=scanner-operator-manager-cluster,groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",namespace=system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=system,resources=leases,resourceNames=scanner-operator-manager,verbs=get;update

func newManager(o options) (manager.Manager, error) {
	return ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme: newScheme(),
		Cache: cache.Options{
			DefaultNamespaces: o.cacheNamespaces(),
			NewInformer:       preflight.NewInformer,
			ByObject: map[ctrlclient.Object]cache.ByObject{
				&corev1.Pod{}:       {Transform: inventory.StripPod},
				&corev1.Node{}:      {Transform: inventory.StripNode},
				&corev1.Namespace{}: {Transform: inventory.StripNamespace}, // only their metadata is watched
			},
		},
		// Secrets, ConfigMaps and PersistentVolumeClaims are read one by one where they are needed. They are not watched.
		Client: ctrlclient.Options{Cache: &ctrlclient.CacheOptions{DisableFor: []ctrlclient.Object{
			&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.PersistentVolumeClaim{},
		}}},
		Metrics: metricsserver.Options{
			BindAddress: o.MetricsAddr, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		HealthProbeBindAddress:        o.ProbeAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              managerName,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
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

// serviceDNSNames returns the DNS names by which pods reach a Service.
func serviceDNSNames(service, namespace string) []string {
	return []string{service + "." + namespace + ".svc", service + "." + namespace + ".svc.cluster.local", service + "." + namespace}
}

// setupBackends creates the engines, by the API's constants.
func (op *operator) setupBackends() error {
	listing, err := listingClient(op.config.Grype.Database.CABundle)
	if err != nil {
		return fmt.Errorf("grype.database.caBundle: %w", err)
	}
	op.grype = grype.New(grype.Options{
		Client: op.manager.GetClient(), Reader: op.manager.GetAPIReader(), Store: op.store, Config: op.config, Clock: op.clock,
		Log: ctrl.Log.WithName("grype"), HTTP: op.withMetrics("listing", listing),
		Namespace: op.options.Namespace, WorkerImage: op.options.WorkerImage,
		ServerURL: op.options.IngestURL, ServerCA: op.authority.Bundle, Wake: op.wakeups.Image, DataChanged: op.enqueueScanners,
		Metrics: ctrlmetrics.Registry, Loops: op.loops,
		Random: randomSuffix, Proxy: proxy.ReadProxyVarsFromEnv(),
	})
	registries, err := registry.NewTransport(op.config.RegistrySettings())
	if err != nil {
		return fmt.Errorf("registries: %w", err)
	}
	op.clairs = clair.NewEngines(clair.Options{
		Reader: op.manager.GetAPIReader(), Store: op.store, Config: op.config, Clock: op.clock, Log: ctrl.Log.WithName("clair"),
		Namespace: op.options.Namespace, ServiceAccount: op.options.Account, Registries: op.requests.Transport("registry", registries),
		Metrics: ctrlmetrics.Registry, Loops: op.loops, Requests: op.requests,
		Wake: op.wakeups.Image, DataChanged: op.enqueueScanners, Random: mathrand.Float64,
	})
	op.backends = backend.Choosers{v1alpha1.BackendGrype: backend.Always(op.grype), v1alpha1.BackendClair: op.clairs.For}
	if op.options.FakeBackend {
		op.backends[v1alpha1.BackendGrype] = backend.Always(&fake.Backend{Store: op.store, Clock: op.clock, Log: ctrl.Log.WithName("fake")})
	}
	return nil
}

// listingClient returns the HTTP client that reads the listing of vulnerability databases. It uses the proxies from the environment, and
// trusts the given authorities (PEM) in addition to the well-known ones.
func listingClient(authorities string) (*http.Client, error) {
	client := &http.Client{Timeout: listingTimeout}
	if authorities == "" {
		return client, nil
	}
	roots, err := registry.Authorities(authorities)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	client.Transport = transport
	return client, nil
}

// withMetrics adds metrics to a client's transport and returns the client.
func (op *operator) withMetrics(server string, client *http.Client) *http.Client {
	transport := client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	client.Transport = op.requests.Transport(server, transport)
	return client
}

// enqueueScanners enqueues all Scanners, so that their status shows what has changed in the operator, such as the vulnerability data in use.
func (op *operator) enqueueScanners(ctx context.Context) {
	var scanners v1alpha1.ScannerList
	if err := op.manager.GetClient().List(ctx, &scanners); err != nil {
		ctrl.Log.Error(err, "Listing Scanners from the cache")
		return
	}
	for i := range scanners.Items {
		op.wakeups.Scanner(ctx, &scanners.Items[i])
	}
}

// addIngest serves the ingest API while this process leads.
func (op *operator) addIngest(ctx context.Context) error {
	reviews, err := op.newReviewClient()
	if err != nil {
		return err
	}
	budgets := op.config.Ingest
	ingest := &ingest.Ingest{
		Store: op.store, Backend: op.grype, Clock: clock.RealClock{}, Log: ctrl.Log.WithName("ingest"),
		Client: reviews, Reader: reviews, SpoolDir: op.options.SpoolDir,
		LeaseTime: grype.LeaseTime(op.config.Grype.Match), WorkerImage: op.options.WorkerImage, Metrics: ctrlmetrics.Registry,
		SpoolBytes: budgets.SpoolSize.Value(), SpoolShare: budgets.SpoolSizePerNamespace.Value(), StoreBytes: budgets.StoreSizePerNamespace.Value(),
	}
	handler, err := ingest.Handler()
	if err != nil {
		return fmt.Errorf("ingest API: %w", err)
	}
	certificates := &certificate.Server{Authority: op.authority, Names: serviceDNSNames(ingestService, op.options.Namespace)}
	listening, err := new(net.ListenConfig).Listen(ctx, "tcp", op.options.IngestAddress)
	if err != nil {
		return fmt.Errorf("--ingest-bind-address: %w", err)
	}
	limited := listener.Limit(listening, maxConnections)
	if err := op.manager.Add(op.periodic(spoolSweepInterval, "spool", "Tidying the spool", ingest.Sweep)); err != nil {
		return err
	}
	return op.manager.Add(&manager.Server{
		Name: "ingest", OnlyServeWhenLeader: true,
		Server: &http.Server{
			Handler: listener.CloseUnauthorized(handler), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
			// Workers that wait for work are disconnected at shutdown instead of being waited for.
			BaseContext: func(net.Listener) context.Context { return ctx },
			TLSConfig:   &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificates.GetCertificate},
		},
		Listener: tls.NewListener(limited, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificates.GetCertificate}),
	})
}

func (op *operator) addControllers(ctx context.Context) error {
	if err := inventory.SetupIndexes(ctx, op.manager.GetFieldIndexer()); err != nil {
		return err
	}
	client, events := op.manager.GetClient(), op.manager.GetEventRecorder("scanner-operator")
	durable, advice, err := op.options.storeVolume(op.manager.GetAPIReader()).Durability(ctx)
	if err != nil {
		return err
	}
	exceptions, suppressionCounts, images := op.exceptions(), &controllers.SuppressionCounts{}, op.inventory()
	scanners := &controllers.ScannerReconciler{
		Client: client, Reader: op.manager.GetAPIReader(), Store: op.store, Backends: op.backends, Clock: op.clock, Events: events, Wakeups: op.wakeups,
		Exceptions: exceptions, Suppressed: suppressionCounts, StoreDurable: durable, StoreAdvice: advice, Permissions: op.permissions, Inventory: images, Metrics: op.controllerMetrics,
	}
	if err := op.manager.Add(op.periodic(scannerSweepInterval, "scanners", "Looking for Scanners that have gone, and at engines", func(ctx context.Context) error {
		return errors.Join(scanners.SweepScanners(ctx), scanners.DetectEngineChanges(ctx))
	})); err != nil {
		return err
	}
	notifications := op.notifications(images)
	if err := op.manager.Add(op.periodic(op.options.SweepInterval, "receivers", "Forgetting receivers that have gone", notifications.SweepReceivers)); err != nil {
		return err
	}
	imageScans := &controllers.ImageScanReconciler{
		Client: client, Reader: op.manager.GetAPIReader(), Store: op.store, Backends: op.backends, Clock: op.clock, Events: events, Wakeups: op.wakeups,
		Exceptions: exceptions, Permissions: op.permissions, Inventory: images, Metrics: op.controllerMetrics, Random: mathrand.Float64,
	}
	if err := op.manager.Add(op.periodic(scannerSweepInterval, "uses", "Releasing images without an ImageScan", imageScans.SweepUses)); err != nil {
		return err
	}
	for _, controller := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&controllers.PodReconciler{Client: client, Backends: op.backends, Clock: op.clock, Events: events, Permissions: op.permissions, Inventory: images},
		imageScans,
		scanners,
		notifications,
		&controllers.ExceptionReconciler{
			Client: client, Exceptions: exceptions, Clock: op.clock, Events: events, Suppressed: suppressionCounts, Wakeups: op.wakeups, Permissions: op.permissions,
		},
	} {
		if err := controller.SetupWithManager(op.manager); err != nil {
			return err
		}
	}
	return nil
}

// inventory returns the inventory that all reconcilers share.
func (op *operator) inventory() *inventory.Inventory {
	return &inventory.Inventory{
		Client: op.manager.GetClient(), Store: op.store, Clock: op.clock, ShareSBOMs: op.options.ShareSBOMs,
		Limits: inventory.Limits{Scanners: op.config.Limits.ScannersPerNamespace, ImageScans: op.config.Limits.ImageScansPerNamespace},
	}
}

// exceptions returns a source of exceptions that reads from the cache.
func (op *operator) exceptions() active.Source {
	return active.Source{Reader: op.manager.GetClient(), Clock: op.clock}
}

// notifications creates the reconciler that sends messages to receivers.
func (op *operator) notifications(images *inventory.Inventory) *controllers.NotificationReconciler {
	return &controllers.NotificationReconciler{
		Client: op.manager.GetClient(), Store: op.store, Backends: op.backends, Clock: op.clock,
		Events: op.manager.GetEventRecorder("scanner-operator"), Wakeups: op.wakeups, Exceptions: op.exceptions(), ReadMore: op.options.ReadMore, Metrics: op.controllerMetrics,
		Thresholds: health.Thresholds{
			ScansFailing: op.config.Notifications.ScansFailingAfter.Duration, ImagesFailed: op.config.Notifications.ImagesFailedAfter.Duration,
		},
		Permissions: op.permissions, Inventory: images, RecordDelivery: op.deliveries.Count,
		Sender: client.New(client.Config{
			URL: op.options.NotifierURL, TokenFile: op.options.NotifierToken,
			CA: func() (*x509.CertPool, error) { return op.authority.Pool(), nil },
		}),
	}
}

// addLoops adds the loops that run beside the controllers while this process leads.
func (op *operator) addLoops(context.Context) error {
	loops := []manager.RunnableFunc{
		op.grype.RunJobs,
		op.grype.RunListingPolls,
		op.clairs.Run,
		op.watchStore,
		op.checkStoreIntegrity,
		op.crds.Run,
		op.periodic(op.options.SweepInterval, "sweep", "Sweeping the store", op.sweep),
		op.periodic(certificateInterval, "certificates", "Refreshing certificates", op.refreshCertificates),
	}
	for _, loop := range loops {
		if err := op.manager.Add(loop); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes from the store what is no longer needed.
func (op *operator) sweep(ctx context.Context) error {
	now := op.clock.Now()
	_, err := op.store.Sweep(ctx, now.Add(-recordRetention))
	_, messagesErr := op.store.SweepMessages(ctx, now.Add(-op.config.Notifications.LogRetention.Duration))
	return errors.Join(err, messagesErr)
}

// periodic returns a loop that calls work at once and then at each interval until the context ends. An error is logged with the message name,
// and the loop goes on. loop is the label of the loop's metrics.
func (op *operator) periodic(interval time.Duration, loop, name string, work func(context.Context) error) manager.RunnableFunc {
	return func(ctx context.Context) error {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			if err := op.loops.Run(loop, func() error { return work(ctx) }); err != nil && ctx.Err() == nil {
				ctrl.Log.Error(err, name)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	}
}

// addChecks adds the health checks. The process is always alive. It is ready once it leads, since only then does it serve workers.
func (op *operator) addChecks(context.Context) error {
	if err := op.manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return op.manager.AddReadyzCheck("leading", func(*http.Request) error {
		select {
		case <-op.manager.Elected():
			return nil
		default:
			return errors.New("another manager leads; this one waits for its lease to end")
		}
	})
}

// randomSuffix returns n letters and digits for names that nobody can predict.
func randomSuffix(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz012345" // 32 characters: each is equally likely
	suffix := make([]byte, n)
	_, _ = rand.Read(suffix) // never fails: crypto/rand ends the process instead
	for i := range suffix {
		suffix[i] = alphabet[int(suffix[i])%len(alphabet)]
	}
	return string(suffix)
}
