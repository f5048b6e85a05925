// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	zone      = "clusterset.local"
	namespace = "sample"
	// perShard is how many imports a Bundle has at most.
	perShard = 300
)

// Every fourth import is headless, with two endpoints in c2 and one in c3.
func isHeadless(i int) bool { return i%4 == 3 }

func serviceName(i int) string { return fmt.Sprintf("service-%d", i) }

func address(second, i int) string { return fmt.Sprintf("10.%d.%d.%d", second, i/250, 1+i%250) }

// kind of query.
type kind struct {
	says     string
	headless bool
}

func kinds() []kind { return []kind{{"ClusterSetIP", false}, {"headless", true}} }

// queries for the addresses of every service of the kind.
func (k kind) queries(n int) (out []*dns.Msg) {
	for i := range n {
		if isHeadless(i) == k.headless {
			out = append(out, new(dns.Msg).SetQuestion(serviceName(i)+"."+namespace+".svc."+zone+".", dns.TypeA))
		}
	}
	return out
}

// populate creates n imports as the cluster agent and the broker do: ServiceImports, the EndpointSlices of the
// headless ones, Bundles.
func populate(ctx context.Context, config *rest.Config, n int) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme, mcs.Install} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("build a scheme: %w", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	objs := bundles(n)
	for i := range n {
		objs = append(objs, serviceImport(i))
		if isHeadless(i) {
			objs = append(objs, slice(i, "c2", address(11, i), address(12, i)), slice(i, "c3", address(13, i)))
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, obj := range objs {
		g.Go(func() error {
			if err := c.Create(ctx, obj); err != nil {
				return fmt.Errorf("create %T %s: %w", obj, obj.GetName(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

func serviceImport(i int) *mcs.ServiceImport {
	out := &mcs.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceName(i)},
		Spec: mcs.ServiceImportSpec{
			Type: mcs.ClusterSetIP, IPs: []string{address(8, i)},
			Ports: []mcs.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	if isHeadless(i) {
		out.Spec.Type, out.Spec.IPs = mcs.Headless, nil
	}
	return out
}

// slice of a headless import's endpoints in one cluster.
func slice(i int, cluster string, ips ...string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: serviceName(i) + "-" + cluster,
			Labels: map[string]string{mcs.LabelServiceName: serviceName(i), mcs.LabelSourceCluster: cluster},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for j, ip := range ips {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, Hostname: ptr.To(fmt.Sprintf("h-%d", j)),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return out
}

// bundles with n imports.
func bundles(n int) (out []client.Object) {
	shards := int32((n + perShard - 1) / perShard)
	all := make([]*v1alpha1.Bundle, shards)
	for shard := range all {
		all[shard] = &v1alpha1.Bundle{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BundleName(int32(shard))},
			Spec: v1alpha1.BundleSpec{
				Revision: 1, Shard: int32(shard), Imports: []v1alpha1.Import{}, ExportConditions: []v1alpha1.ExportCondition{},
			},
		}
		out = append(out, all[shard])
	}
	for i := range n {
		b := all[v1alpha1.Shard(namespace, serviceName(i), shards)]
		b.Spec.Imports = append(b.Spec.Imports, imported(i))
	}
	return out
}

func imported(i int) v1alpha1.Import {
	out := v1alpha1.Import{
		Namespace: namespace, Name: serviceName(i),
		Settings: v1alpha1.ServiceSettings{
			Type: v1alpha1.ClusterSetIP, SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
		Clusters: []v1alpha1.ImportCluster{
			exporter("c2", address(9, i), address(11, i), address(12, i)),
			exporter("c3", address(10, i), address(13, i)),
		},
	}
	if isHeadless(i) {
		out.Settings.Type = v1alpha1.Headless
		out.Clusters[0].ClusterIPs, out.Clusters[1].ClusterIPs = []string{}, []string{}
	}
	return out
}

func exporter(cluster, clusterIP string, pods ...string) v1alpha1.ImportCluster {
	backends := v1alpha1.Backends{Ports: []v1alpha1.BackendPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}}}
	for i, ip := range pods {
		backends.Addresses = append(backends.Addresses, v1alpha1.Backend{IP: ip, Hostname: fmt.Sprintf("h-%d", i), Ready: true, Serving: true})
	}
	return v1alpha1.ImportCluster{
		Cluster: cluster, CreatedAt: metav1.Now(), Ports: []string{"http"}, ClusterIPs: []string{clusterIP},
		Backends: []v1alpha1.Backends{backends},
	}
}

// writeKubeconfig returns the path of a kubeconfig for the API server.
func writeKubeconfig(config *rest.Config) (string, error) {
	k := clientcmdapi.NewConfig()
	k.Clusters["c1"] = &clientcmdapi.Cluster{Server: config.Host, InsecureSkipTLSVerify: true}
	k.AuthInfos["c1"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	k.Contexts["c1"] = &clientcmdapi.Context{Cluster: "c1", AuthInfo: "c1"}
	k.CurrentContext = "c1"
	f, err := os.CreateTemp("", "sealane-bench-")
	if err != nil {
		return "", fmt.Errorf("make a kubeconfig: %w", err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("make a kubeconfig: %w", err)
	}
	if err := clientcmd.WriteToFile(*k, f.Name()); err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	return f.Name(), nil
}
