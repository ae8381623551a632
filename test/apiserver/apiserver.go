// Package apiserver runs an API server with etcd for the benchmarks and the crash test. It knows the operator's resources. There is no
// kubelet and no controller: nodes and pods are only objects.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/scanner-operator/scanner-operator/api/v1alpha1"
)

// Server is a running API server with etcd. Its client has all permissions and no rate limit.
type Server struct {
	client.Client
	environment *envtest.Environment
}

// etcdQuota is enough for all revisions of 100,000 pods until they are compacted, in bytes. etcd's default is 2 GB.
const etcdQuota = "8589934592"

// Start starts a server. root is the project's directory, assets the directory of etcd and kube-apiserver. flags are additional flags of
// kube-apiserver, without dashes.
func Start(root, assets string, flags map[string]string) (_ *Server, err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	s := &Server{environment: &envtest.Environment{
		BinaryAssetsDirectory: assets, Scheme: scheme,
		CRDDirectoryPaths: []string{filepath.Join(root, "config", "crd", "bases")}, ErrorIfCRDPathMissing: true,
	}}
	for flag, value := range flags {
		s.environment.ControlPlane.GetAPIServer().Configure().Set(flag, value)
	}
	s.environment.ControlPlane.Etcd = &envtest.Etcd{}
	s.environment.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", etcdQuota)
	config, err := s.environment.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("API server: %w", err), s.Stop())
	}
	config.QPS = -1 // no client-side rate limit
	if s.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Kubeconfig writes a kubeconfig file for a user with all permissions.
func (s *Server) Kubeconfig(dir, user string) (file string, err error) {
	added, err := s.environment.AddUser(envtest.User{Name: user, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return "", err
	}
	content, err := added.KubeConfig()
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, user+".kubeconfig")
	return file, os.WriteFile(file, content, 0o600)
}

// CreateNamespace creates a namespace.
func (s *Server) CreateNamespace(ctx context.Context, name string) error {
	return s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// CreateNode creates a node with the platform linux/amd64, as the kubelet does.
func (s *Server) CreateNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.Create(ctx, node); err != nil {
		return err
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"}
	return s.Status().Update(ctx, node)
}

// EtcdURL returns the address of a path in etcd's JSON API.
func (s *Server) EtcdURL(path ...string) string {
	return s.environment.ControlPlane.Etcd.URL.JoinPath(path...).String()
}

// URL returns the address of the server, without a slash at its end.
func (s *Server) URL() string { return strings.TrimSuffix(s.environment.Config.Host, "/") }

// SigningKey returns the file with the private key of ServiceAccount tokens, PEM.
func (s *Server) SigningKey() string {
	return filepath.Join(s.environment.ControlPlane.GetAPIServer().CertDir, "sa-signer.key")
}

// Stop stops server and etcd. A nil Server is stopped already.
func (s *Server) Stop() error {
	if s == nil {
		return nil
	}
	return s.environment.Stop()
}
