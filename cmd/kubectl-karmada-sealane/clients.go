// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// fieldManager owns the fields that this command applies.
const fieldManager = "kubectl-karmada-sealane"

// api is one API server.
type api struct {
	client.Client
	// Context of the kubeconfig that leads there.
	context string
	config  *rest.Config
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install,
		clusterv1alpha1.Install, policyv1alpha1.Install, workv1alpha1.Install, workv1alpha2.Install,
		v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	return scheme, nil
}

// connect opens the API server of a kubeconfig context; nothing is dialled yet.
func (o *options) connect(file, contextName string) (*api, error) {
	config, err := o.config(file, contextName).ClientConfig()
	if err != nil {
		return nil, o.unusable(file, contextName, err)
	}
	if contextName == "" {
		if raw, err := o.config(file, "").RawConfig(); err == nil {
			contextName = raw.CurrentContext
		}
	}
	return newAPI(config, contextName)
}

// unusable is the finding about a kubeconfig that leads to no API server; an empty context is the current one.
func (o *options) unusable(file, contextName string, err error) *finding {
	expected := "a kubeconfig with a current context"
	if contextName != "" {
		expected = fmt.Sprintf("a usable kubeconfig context %q", contextName)
	}
	names, found := o.contextNames(file), err.Error()
	switch file := cmp.Or(file, o.kubeconfig); {
	case clientcmd.IsEmptyConfig(err) && len(names) > 0:
		found = "no current context"
	case clientcmd.IsEmptyConfig(err) && file != "":
		found = file + " has no context"
	case clientcmd.IsEmptyConfig(err):
		found = "neither $KUBECONFIG nor ~/.kube/config leads to a file with a context"
	}
	if len(names) > 0 {
		found += "; contexts: " + strings.Join(names, ", ")
	}
	return &finding{
		expected: expected, found: found,
		remedy: didYouMean(contextName, names) + "name the kubeconfig with --kubeconfig, the context of the Karmada API " +
			"with --karmada-context, that of a member with --context",
	}
}

func newAPI(config *rest.Config, contextName string) (*api, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	// The API server's own fairness bounds it: a client that bounds itself says in words of its own, and not by the
	// context's error, that it would have to wait beyond the deadline.
	config.QPS = -1
	config.UserAgent = fieldManager
	config.WarningHandler = rest.NoWarnings{}
	c, err := connectTo(config, scheme)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &api{Client: c, context: contextName, config: config}, nil
}

// discoveryTime is how long an API server has for each question of which kinds it serves. These heed no context.
const discoveryTime = 10 * time.Second

func connectTo(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	all, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	discovery := *all
	discovery.Timeout = discoveryTime
	mapper, err := apiutil.NewDynamicRESTMapper(config, &discovery)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme, HTTPClient: all, Mapper: mapper})
}

// serverVersion is what an API server says of itself.
func (a *api) serverVersion() (*version.Info, error) {
	config := rest.CopyConfig(a.config)
	config.Timeout = discoveryTime
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return d.ServerVersion()
}

func (o *options) contextNames(file string) []string {
	var names []string
	for name := range o.contexts(file) {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// karmada opens the Karmada API.
func (o *options) karmada() (*api, error) { return o.connect("", o.karmadaContext) }

// member opens a member cluster: through the kubeconfig context of its name, if that leads to the same
// cluster, else through the cluster proxy of Karmada.
func (o *options) member(ctx context.Context, karmada *api, m *v1alpha1.Member) (*api, error) {
	var direct error
	if _, ok := o.contexts("")[m.Name]; ok && m.Name != karmada.context {
		c, err := o.connect("", m.Name)
		if err == nil {
			err = c.identify(ctx, m)
		}
		if err == nil {
			return c, nil
		}
		direct = fmt.Errorf("context %s: %w; ", m.Name, err)
	}
	config := rest.CopyConfig(karmada.config)
	config.Host = strings.TrimSuffix(config.Host, "/") + "/apis/cluster.karmada.io/v1alpha1/clusters/" + m.Name + "/proxy"
	c, err := newAPI(config, m.Name)
	if err == nil {
		err = c.identify(ctx, m)
	}
	if err != nil {
		if direct != nil {
			return nil, fmt.Errorf("%wcluster proxy: %w", direct, err)
		}
		return nil, fmt.Errorf("cluster proxy: %w", err)
	}
	return c, nil
}

// memberAt opens the member that a kubeconfig context leads to, and tells its name in Karmada, which the
// context need not share.
func (o *options) memberAt(ctx context.Context, contextName string) (*api, string, error) {
	c, err := o.connect("", contextName)
	if err != nil {
		return nil, "", err
	}
	var peering v1alpha1.Peering
	err = c.Get(ctx, client.ObjectKey{Name: v1alpha1.PeeringName}, &peering)
	if err != nil && !gone(err) {
		return nil, "", c.unanswered("the member", "--context", err)
	}
	if err != nil {
		return nil, "", &finding{
			expected: fmt.Sprintf("context %s to lead to a member, which has a Peering %s", contextName, v1alpha1.PeeringName),
			found:    err.Error(),
			remedy:   "name the context of a member, or make the cluster one: " + o.invocation + " join " + contextName,
		}
	}
	return c, peering.Spec.ClusterID, nil
}

// identify tells whether the API server is that of the member: its kube-system namespace is the
// cluster's identity.
func (a *api) identify(ctx context.Context, m *v1alpha1.Member) error {
	var ns corev1.Namespace
	if err := a.Get(ctx, client.ObjectKey{Name: "kube-system"}, &ns); err != nil {
		return err
	}
	if m.Spec.ClusterUID != "" && string(ns.UID) != m.Spec.ClusterUID {
		return fmt.Errorf("is another cluster: its identity is %s, that of the member is %s", ns.UID, m.Spec.ClusterUID)
	}
	return nil
}
