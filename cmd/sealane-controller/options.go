// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sealane-io/sealane/internal/credential"
	"github.com/sealane-io/sealane/internal/redial"
	"github.com/sealane-io/sealane/internal/version"
)

// options of the command line.
type options struct {
	kubeconfig, context          string
	tokenSecret                  string
	leaderElect                  bool
	metricsAddress, probeAddress string
	qps                          float32
	burst, verbosity             int
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the Karmada API; without it, the usual places are tried")
	f.StringVar(&o.context, "karmada-context", "", "context in the kubeconfig; its current one by default")
	f.StringVar(&o.tokenSecret, "token-secret", "",
		"Secret, as namespace/name, of the cluster that the controller runs in, "+
			"whose key \"token\" it keeps renewed; by default, the token file that the kubeconfig names")
	f.BoolVar(&o.leaderElect, "leader-elect", true,
		"run only while holding the Lease sealane-controller in sealane-system on the Karmada API")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
	f.Float32Var(&o.qps, "kube-api-qps", 200, "requests per second to the Karmada API")
	f.IntVar(&o.burst, "kube-api-burst", 400, "burst of requests to the Karmada API")
	f.IntVarP(&o.verbosity, "verbosity", "v", 0, "0 logs changes of state, 1 also why")
}

// config reaches the Karmada API.
func (o *options) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the Karmada API: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.UserAgent = "sealane-controller/" + version.Version
	config.Wrap(redial.Transport)
	return config, nil
}

// store is where the token that reaches the Karmada API is kept; nil with a credential of another kind, which is
// not the controller's to renew.
func (o *options) store(config *rest.Config) (credential.Store, error) {
	if o.tokenSecret == "" {
		if config.BearerTokenFile == "" {
			return nil, nil
		}
		return credential.File(config.BearerTokenFile), nil
	}
	namespace, name, ok := strings.Cut(o.tokenSecret, "/")
	if !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("--token-secret: expected namespace/name, found %q", o.tokenSecret)
	}
	host, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster of --token-secret: %w", err)
	}
	core, err := corev1client.NewForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("make a client for --token-secret: %w", err)
	}
	return credential.Secret{Secrets: core.Secrets(namespace), Name: name}, nil
}
