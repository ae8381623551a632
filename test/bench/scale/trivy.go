package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/scanner-operator/scanner-operator/test/process"
	"github.com/scanner-operator/scanner-operator/test/wait"
)

// trivyNamespace is the namespace of trivy-operator and of its Jobs.
const trivyNamespace = "trivy-system"

// trivySettings are the settings of trivy-operator that differ from those of its manifests. Only vulnerabilities are scanned, and a Job that
// must wait for others is tried again after a second instead of 30 s.
var trivySettings = []string{
	"OPERATOR_NAMESPACE=" + trivyNamespace,
	"OPERATOR_SCAN_JOB_RETRY_AFTER=1s",
	"OPERATOR_SBOM_GENERATION_ENABLED=false",
	"OPERATOR_CLUSTER_SBOM_CACHE_ENABLED=false",
	"OPERATOR_CONFIG_AUDIT_SCANNER_ENABLED=false",
	"OPERATOR_RBAC_ASSESSMENT_SCANNER_ENABLED=false",
	"OPERATOR_INFRA_ASSESSMENT_SCANNER_ENABLED=false",
	"OPERATOR_EXPOSED_SECRET_SCANNER_ENABLED=false",
	"OPERATOR_CLUSTER_COMPLIANCE_ENABLED=false",
	"OPERATOR_METRICS_BIND_ADDRESS=127.0.0.1:0",
	"OPERATOR_HEALTH_PROBE_BIND_ADDRESS=127.0.0.1:0",
}

// trivyControllers is the number of controllers that trivy-operator starts with these settings.
const trivyControllers = 9

// trivyOperator is trivy-operator (https://github.com/aquasecurity/trivy-operator), which has a Job and a VulnerabilityReport for each
// workload. It scans as soon as it runs.
type trivyOperator struct {
	version string
	jobs    *jobPlayer
	// started is when the controllers had started.
	started time.Time
}

func (o *trivyOperator) name() string { return "trivy-operator " + o.version }

func (o *trivyOperator) start(ctx context.Context, c *cluster) (p program, err error) {
	admin, err := c.server.Kubeconfig(c.dir, "admin")
	if err != nil {
		return p, err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", filepath.Join(c.options.Bin, "trivy-operator.yaml")},
		{"wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"},
	} {
		kubectl := exec.CommandContext(ctx, filepath.Join(c.options.Assets, "kubectl"), args...)
		kubectl.Env = append(os.Environ(), "KUBECONFIG="+admin)
		if out, err := kubectl.CombinedOutput(); err != nil {
			return p, fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
		}
	}
	// The stand-in for the kubelet serves plain logs.
	settings := &corev1.ConfigMap{}
	settings.Namespace, settings.Name = trivyNamespace, "trivy-operator"
	if err := c.server.Patch(ctx, settings, client.RawPatch(types.MergePatchType, []byte(`{"data":{"scanJob.compressLogs":"false"}}`))); err != nil {
		return p, err
	}
	o.version = settings.Labels["app.kubernetes.io/version"]
	config, err := c.server.Kubeconfig(c.dir, trivyUser)
	if err != nil {
		return p, err
	}
	command := exec.Command(filepath.Join(c.options.Bin, "trivy-operator"))
	command.Env = append(append(os.Environ(), "KUBECONFIG="+config), trivySettings...)
	o.jobs = playJobs(c, trivyNamespace)
	p.user = trivyUser
	if p.Process, err = process.Start(c.dir, "trivy-operator", command); err != nil {
		return p, errors.Join(err, o.jobs.stop())
	}
	err = wait.Eventually(ctx, 5*time.Minute, wait.Often, func(context.Context) error {
		if err := p.Alive(); err != nil {
			return err
		}
		if n := p.Logged("Starting workers"); n < trivyControllers {
			return fmt.Errorf("%d of %d controllers have started", n, trivyControllers)
		}
		return nil
	})
	if err != nil {
		return p, errors.Join(err, o.jobs.stop())
	}
	o.started = time.Now()
	return p, nil
}

func (o *trivyOperator) request(context.Context, *cluster) (began time.Time, err error) {
	return o.started, nil
}

func (o *trivyOperator) covered(ctx context.Context, c *cluster, deployments int) error {
	reports, err := c.count(ctx, o.objects()+"vulnerabilityreports/team-")
	if err != nil {
		return err
	}
	if reports < deployments {
		return errors.Join(fmt.Errorf("%d of %d workloads have a report", reports, deployments), o.jobs.firstError())
	}
	return nil
}

func (o *trivyOperator) scans(program) int { return o.jobs.count() }

func (*trivyOperator) objects() string { return "/registry/aquasecurity.github.io/" }

// remove stops the player. The reports stay, since the other operators do not look at them.
func (o *trivyOperator) remove(context.Context, *cluster, program) error { return o.jobs.stop() }
