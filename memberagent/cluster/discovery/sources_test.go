// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sealane "github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// agentClient returns a client that may do anything, and one with the rights of the shipped ServiceAccount.
func agentClient(t *testing.T) (admin, agent client.Client) {
	t.Helper()
	config := apiserver.Start(t)
	connect := func(c *rest.Config) client.Client {
		out, err := client.New(c, client.Options{Scheme: scheme.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	admin = connect(config)
	text, err := sealane.Artifacts.ReadFile("artifacts/deploy/cluster-agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}})
	for _, document := range strings.Split(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), o); err != nil {
			t.Fatal(err)
		}
		if o.GroupVersionKind().Group == rbacv1.GroupName {
			create(t, admin, o)
		}
	}
	restricted := rest.CopyConfig(config)
	restricted.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + v1alpha1.Namespace + ":sealane-cluster-agent",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + v1alpha1.Namespace, "system:authenticated"},
	}
	return admin, connect(restricted)
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func configMapOf(name, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Data: map[string]string{key: text},
	}
}

// TestEverySourceWorksWithTheShippedRights: a source that the agent may not read would be silent for ever.
func TestEverySourceWorksWithTheShippedRights(t *testing.T) {
	admin, agent := agentClient(t)
	ctx := t.Context()
	if pods, services, err := kubeadm(ctx, agent); err != nil || len(pods)+len(services) > 0 {
		t.Errorf("kubeadm-config that does not exist says %v, %v, %v", pods, services, err)
	}
	create(t, admin, configMapOf("kubeadm-config", "ClusterConfiguration",
		"networking:\n  podSubnet: 10.8.0.0/16,fd00:8::/48\n  serviceSubnet: 10.88.0.0/16\n"))
	create(t, admin, configMapOf("kube-proxy", "config.conf", "clusterCIDR: 10.9.0.0/16\n"))

	type source = func(context.Context, client.Client) (pods, services []netip.Prefix, err error)
	services := func(list func(context.Context, client.Client) ([]netip.Prefix, error)) source {
		return func(ctx context.Context, c client.Client) ([]netip.Prefix, []netip.Prefix, error) {
			out, err := list(ctx, c)
			return nil, out, err
		}
	}
	_, served, err := services(serviceCIDRs)(ctx, admin)
	if err != nil || len(served) == 0 {
		t.Fatalf("the API server serves ServiceCIDRs %v, %v", served, err)
	}
	for name, c := range map[string]struct {
		ask            source
		pods, services string
	}{
		"ServiceCIDR":     {services(serviceCIDRs), "[]", fmt.Sprint(served)},
		"kubeadm-config":  {kubeadm, "[10.8.0.0/16 fd00:8::/48]", "[10.88.0.0/16]"},
		"kube-proxy":      {kubeProxy, "[10.9.0.0/16]", "[]"},
		"refused Service": {services(refusedService), "[]", fmt.Sprint(served)},
	} {
		t.Run(name, func(t *testing.T) {
			pods, services, err := c.ask(ctx, agent)
			if err != nil || fmt.Sprint(pods) != c.pods || fmt.Sprint(services) != c.services {
				t.Errorf("pods %v, services %v, error %v; want %s and %s", pods, services, err, c.pods, c.services)
			}
		})
	}
	h, err := gather(ctx, agent)
	if err != nil || fmt.Sprint(h.StatedPods) != "[10.8.0.0/16 fd00:8::/48]" ||
		fmt.Sprint(h.StatedServices) != fmt.Sprint(served) {
		t.Errorf("gathered %+v, %v", h, err)
	}
}

// plural names of the kinds that CNI plugins install.
var plurals = map[string]string{"IPPool": "ippools", "BlockAffinity": "blockaffinities", "CiliumNode": "ciliumnodes",
	"Subnet": "subnets", "SpiderIPPool": "spiderippools", "SpiderSubnet": "spidersubnets"}

// install a kind without checks, and make an object of it as soon as it is served.
func install(t *testing.T, admin client.Client, object string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(object), &o.Object); err != nil {
		t.Fatal(err)
	}
	kind := o.GroupVersionKind()
	text := fmt.Sprintf("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, "+
		"metadata: {name: %[1]s.%[2]s}, spec: {group: %[2]s, scope: Cluster, names: {kind: %[3]s, plural: %[1]s}, "+
		"versions: [{name: %[4]s, served: true, storage: true, "+
		"schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}",
		plurals[kind.Kind], kind.Group, kind.Kind, kind.Version)
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &crd.Object); err != nil {
		t.Fatal(err)
	}
	create(t, admin, crd)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 20*time.Second, true,
		func(ctx context.Context) (bool, error) { return admin.Create(ctx, o) == nil, nil })
	if err != nil {
		t.Fatalf("%s is not served: %v", kind, err)
	}
}

// TestObjectsOfPluginsAreReadWithTheShippedRights: each kind from when it is installed on, and none before.
func TestObjectsOfPluginsAreReadWithTheShippedRights(t *testing.T) {
	admin, agent := agentClient(t)
	ctx := t.Context()
	want := []netip.Prefix{}
	for _, c := range []struct{ object, adds string }{
		{"", ""},
		{"{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.1.0.0/16}}",
			"10.1.0.0/16"},
		{"{apiVersion: crd.projectcalico.org/v1, kind: BlockAffinity, metadata: {name: a}, spec: {cidr: 10.2.0.0/26, " +
			"node: a, state: confirmed, deleted: 'false'}}", "10.2.0.0/26"},
		{"{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: a}, spec: {ipam: {podCIDRs: [10.3.0.0/24]}}}",
			"10.3.0.0/24"},
		{"{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: a}, spec: {cidrBlock: 10.4.0.0/16}}", "10.4.0.0/16"},
		{"{apiVersion: spiderpool.spidernet.io/v2beta1, kind: SpiderIPPool, metadata: {name: a}, " +
			"spec: {ips: [10.5.0.8-10.5.0.15]}}", "10.5.0.8/29"},
		{"{apiVersion: spiderpool.spidernet.io/v2beta1, kind: SpiderSubnet, metadata: {name: a}, " +
			"spec: {ips: [10.6.0.8-10.6.0.15]}}", "10.6.0.8/29"},
	} {
		if c.object != "" {
			install(t, admin, c.object)
			want = append(want, netip.MustParsePrefix(c.adds))
		}
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true,
			func(ctx context.Context) (bool, error) {
				h, err := gather(ctx, agent)
				return fmt.Sprint(h.CNI) == fmt.Sprint(want), err
			})
		if err != nil {
			h, _ := gather(ctx, agent)
			t.Fatalf("after %q: got %v, want %v: %v", c.object, h.CNI, want, err)
		}
	}
}
