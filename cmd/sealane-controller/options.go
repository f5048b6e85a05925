// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sealane-io/sealane/internal/credential"
	"github.com/sealane-io/sealane/internal/redial"
	"github.com/sealane-io/sealane/internal/securemetrics"
	"github.com/sealane-io/sealane/internal/version"
)

// Default addresses of /metrics, in a cluster and elsewhere.
const (
	metricsAddress  = ":8443"
	metricsLoopback = "127.0.0.1:8443"
)

// options of the command line.
type options struct {
	kubeconfig, context          string
	tokenSecret                  string
	leaderElect                  bool
	metricsAddress, probeAddress string
	profilesAddress              string
	certDir                      string
	qps                          float32
	burst, verbosity             int
	// host reaches the cluster that the controller runs in; rest.ErrNotInCluster outside of one.
	host func() (*rest.Config, error)
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the Karmada API; without it, the usual places are tried")
	f.StringVar(&o.context, "karmada-context", "", "context in the kubeconfig; its current one by default")
	f.StringVar(&o.tokenSecret, "token-secret", "",
		"Secret, as namespace/name, of the cluster that the controller runs in, "+
			"whose key \"token\" it keeps renewed; by default, the token file that the kubeconfig names")
	f.BoolVar(&o.leaderElect, "leader-elect", true,
		"run only while holding the Lease sealane-controller in sealane-system on the Karmada API")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "",
		"address of /metrics, over TLS; 0 turns it off; by default "+metricsAddress+
			" in a cluster, whose API server reviews who reads, and "+metricsLoopback+" elsewhere, where nobody does")
	f.StringVar(&o.certDir, "metrics-cert-dir", securemetrics.CertDir,
		"directory of tls.crt and tls.key for /metrics; without them, a certificate is made")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
	f.StringVar(&o.profilesAddress, "pprof-bind-address", "0",
		"loopback address of /debug/pprof, with profiles of memory and processor time, which anybody there can read; "+
			"0 turns it off")
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
	redial.Notice(config)
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
	host, err := o.host()
	if err != nil {
		return nil, fmt.Errorf("find the cluster of --token-secret: %w", err)
	}
	core, err := corev1client.NewForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("make a client for --token-secret: %w", err)
	}
	return credential.Secret{Secrets: core.Secrets(namespace), Name: name}, nil
}

// metrics are served to whom the API server of the cluster lets read them that the controller runs in, where Prometheus
// runs too, not that of Karmada. Outside of a cluster there is none to ask, and they are served on loopback alone.
func (o *options) metrics() (metricsserver.Options, error) {
	host, err := o.host()
	if err == nil {
		return securemetrics.Options(cmp.Or(o.metricsAddress, metricsAddress), o.certDir, host), nil
	}
	if !errors.Is(err, rest.ErrNotInCluster) {
		return metricsserver.Options{}, fmt.Errorf("find the cluster that reviews who reads metrics: %w", err)
	}
	address := cmp.Or(o.metricsAddress, metricsLoopback)
	if address != "0" && !loopback(address) {
		return metricsserver.Options{}, fmt.Errorf("--metrics-bind-address: expected a loopback address such as %s, "+
			"for outside of a cluster no API server reviews who reads metrics; found %q", metricsLoopback, address)
	}
	return securemetrics.Options(address, o.certDir, nil), nil
}

// profiles is where profiles are served, of which nobody is asked who reads them.
func (o *options) profiles() (string, error) {
	if o.profilesAddress != "0" && !loopback(o.profilesAddress) {
		return "", fmt.Errorf("--pprof-bind-address: expected a loopback address such as 127.0.0.1:6060, for nobody reviews "+
			"who reads profiles, or 0; found %q", o.profilesAddress)
	}
	return o.profilesAddress, nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
