// Command kubernetes is the API server, the controller manager, the scheduler, the kubelet and kube-proxy in one program. It behaves as
// the one that it is called as: start it through a link with that name.
//
// The five share most packages, and one program is linked once. Kubernetes itself was distributed like this until 1.18 (hyperkube).
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs holds the constructors instead of the commands: constructing a command registers feature gates and metrics.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	command, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kubernetes: called as %q; link it as kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy or kubelet\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
