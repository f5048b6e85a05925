// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// defaultClusterSet is the ClusterSet that commands mean unless told otherwise.
const defaultClusterSet = "default"

// options are what every command shares.
type options struct {
	genericiooptions.IOStreams
	// invocation is the command as the user types it, for texts that tell what to run.
	invocation string

	kubeconfig     string
	karmadaContext string
	timeout        time.Duration
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&o.karmadaContext, "karmada-context", "",
		"context of the Karmada API in the kubeconfig (default: the current context)")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait altogether")
}

// config loads a context of the kubeconfig file, the current one for "".
func (o *options) config(file, contextName string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if file == "" {
		file = o.kubeconfig
	}
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: contextName})
}

// contexts are those of the kubeconfig file.
func (o *options) contexts(file string) map[string]*clientcmdapi.Context {
	raw, err := o.config(file, "").RawConfig()
	if err != nil {
		return nil
	}
	return raw.Contexts
}
