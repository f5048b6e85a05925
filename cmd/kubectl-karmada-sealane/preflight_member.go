// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
	netdiscovery "github.com/sealane-io/sealane/memberagent/cluster/discovery"
)

// memberChecks are those that one cluster's API server answers. They fill in its networks.
func (a *api) memberChecks(ctx context.Context, o *options, into *candidate) ([]checked, error) {
	out := []checked{a.kubernetesCheck()}
	found, nodes, err := netdiscovery.Read(ctx, a)
	if err != nil {
		return out, err
	}
	into.networks, into.nodes = found.Networks, found.NodeCIDRs
	out = append(out, kernelCheck(nodes), nodesCheck(nodes), cloudCheck(nodes, into.open))
	if into.ipsec != nil {
		more, err := a.ipsecChecks(ctx, o, into.ipsec, nodes)
		if out = append(out, more...); err != nil {
			return out, err
		}
	}
	for _, next := range []func(context.Context, client.Reader) (checked, error){
		kubeProxyCheck, cniCheck, dnsCheck, inTheWayCheck,
	} {
		c, err := next(ctx, a)
		if err != nil {
			return out, err
		}
		out = append(out, c)
	}
	return append(out, networksCheck(found.Networks, found.Problem)), nil
}

// kubernetesCheck asks the API server for its version.
func (a *api) kubernetesCheck() checked {
	const name, expected = "kubernetes", "Kubernetes 1.30 or later, for the admission policies that bound a stolen token"
	unknown := checked{Name: name, Verdict: verdictWarn, Expected: expected, Remedy: "see that /version can be read"}
	info, err := a.serverVersion()
	if err != nil {
		unknown.Found = err.Error()
		return unknown
	}
	v, err := utilversion.ParseGeneric(info.GitVersion)
	if err != nil || v.LessThan(utilversion.MustParseGeneric("1.30.0")) {
		return checked{Name: name, Verdict: verdictWarn, Found: info.GitVersion, Expected: expected,
			Remedy: "upgrade Kubernetes; Sealane works without the policies"}
	}
	return passed(name, "%s", info.GitVersion)
}

// kernelCheck judges by versions: which modules a kernel has its API server does not know.
func kernelCheck(nodes []corev1.Node) checked {
	const name = "kernel"
	kernels := map[string]bool{}
	var old []string
	for i := range nodes {
		info := nodes[i].Status.NodeInfo
		if info.OperatingSystem != "linux" && info.OperatingSystem != "" {
			continue
		}
		kernels[info.KernelVersion] = true
		v, err := utilversion.ParseGeneric(strings.SplitN(info.KernelVersion, "-", 2)[0])
		if err != nil || v.LessThan(utilversion.MustParseGeneric("5.6.0")) {
			old = append(old, fmt.Sprintf("%s has %q", nodes[i].Name, info.KernelVersion))
		}
	}
	switch {
	case len(kernels) == 0:
		return checked{Name: name, Verdict: verdictFail, Found: "no Linux node", Expected: "nodes that run Linux",
			Remedy: "add one: only these are connected"}
	case len(old) > 0:
		return checked{Name: name, Verdict: verdictWarn, Found: clip.List(old, 5),
			Expected: "Linux 5.6 or later, which has WireGuard",
			Remedy: "see that the nodes have WireGuard's module or /dev/net/tun, and VXLAN and nftables, which cannot be seen " +
				"from here"}
	}
	versions := make([]string, 0, len(kernels))
	for v := range kernels {
		versions = append(versions, v)
	}
	slices.Sort(versions)
	return passed(name, "Linux %s; its modules cannot be seen from here", clip.List(versions, 5))
}

// nodesCheck wants an internal address of every node.
func nodesCheck(nodes []corev1.Node) checked {
	const name = "nodes"
	var without []string
	for i := range nodes {
		if len(netdiscovery.NodeCIDRs(nodes[i:i+1])) == 0 {
			without = append(without, nodes[i].Name)
		}
	}
	if len(without) > 0 || len(nodes) == 0 {
		return checked{Name: name, Verdict: verdictFail,
			Found:    fmt.Sprintf("%d nodes, without an internal address: %s", len(nodes), clip.List(without, 5)),
			Expected: "nodes with an InternalIP in their status", Remedy: "set --node-ip of their kubelets"}
	}
	return passed(name, "%d, each with an internal address", len(nodes))
}

// kubeProxyCheck reads kube-proxy's configuration, as kubeadm writes it. That of k3s runs in k3s's own process.
func kubeProxyCheck(ctx context.Context, c client.Reader) (checked, error) {
	const name, expected = "kube-proxy", "kube-proxy in iptables, nftables or ipvs mode"
	var cm corev1.ConfigMap
	found, err := find(ctx, c, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}, &cm)
	if err != nil {
		return checked{}, err
	}
	var config struct {
		Mode string `json:"mode"`
	}
	said := found && yaml.Unmarshal([]byte(cm.Data["config.conf"]), &config) == nil
	nodes, err := nodesOf(ctx, c)
	if err != nil {
		return checked{}, err
	}
	if !found && runsK3s(nodes) {
		return passed(name, "in the process of k3s, in iptables mode unless its --kube-proxy-arg says otherwise"), nil
	}
	if !said {
		return checked{Name: name, Verdict: verdictWarn, Found: "no ConfigMap kube-system/kube-proxy that says its mode",
			Expected: expected, Remedy: "see how Services are served here: what replaces kube-proxy was not tested"}, nil
	}
	switch config.Mode {
	case "", "iptables", "nftables", "ipvs":
		if config.Mode == "" {
			config.Mode = "iptables, by default"
		}
		return passed(name, "mode %s", config.Mode), nil
	}
	return checked{Name: name, Verdict: verdictWarn, Found: "mode " + config.Mode, Expected: expected,
		Remedy: "this mode was not tested: if services of other clusters do not answer, set mode: nftables, or iptables, " +
			"in ConfigMap kube-system/kube-proxy and restart its pods"}, nil
}

// nodesOf lists a cluster's nodes.
func nodesOf(ctx context.Context, c client.Reader) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	return list.Items, nil
}

// runsK3s says whether all nodes run k3s with its kube-proxy. k3s writes the arguments that it runs with at its Node.
func runsK3s(nodes []corev1.Node) bool {
	return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		return !strings.Contains(n.Status.NodeInfo.KubeletVersion, "+k3s") ||
			strings.Contains(n.Annotations["k3s.io/node-args"], `"--disable-kube-proxy"`)
	})
}

// flannelBackend is the annotation that flannel writes at its Node, wherever it runs.
const flannelBackend = "flannel.alpha.coreos.com/backend-type"

// plugins are CNI plugins by the names of their DaemonSets.
var plugins = map[string]string{
	"calico-node": "Calico", "canal": "Canal", "cilium": "Cilium", "kube-flannel-ds": "flannel", "kindnet": "kindnet",
	"kube-ovn-cni": "Kube-OVN", "spiderpool-agent": "Spiderpool", "antrea-agent": "Antrea", "weave-net": "Weave Net",
	"aws-node": "Amazon VPC CNI", "kube-router": "kube-router",
}

// cniCheck names the CNI plugin that it finds.
func cniCheck(ctx context.Context, c client.Reader) (checked, error) {
	const name = "cni"
	var sets appsv1.DaemonSetList
	if err := c.List(ctx, &sets); err != nil {
		return checked{}, fmt.Errorf("list DaemonSets: %w", err)
	}
	var found []string
	for i := range sets.Items {
		if plugin := plugins[sets.Items[i].Name]; plugin != "" && !slices.Contains(found, plugin) {
			found = append(found, plugin)
		}
	}
	nodes, err := nodesOf(ctx, c)
	if err != nil {
		return checked{}, err
	}
	if slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Annotations[flannelBackend] != "" }) &&
		!slices.Contains(found, "flannel") {
		found = append(found, "flannel")
	}
	if len(found) == 0 {
		return checked{Name: name, Verdict: verdictWarn, Found: "no DaemonSet of a CNI plugin that Sealane knows",
			Expected: "a CNI plugin that routes pods' traffic through the host",
			Remedy:   "see docs/cni.md; networks that are not found below are to be stated in the ClusterSet"}, nil
	}
	slices.Sort(found)
	return passed(name, "%s", strings.Join(found, ", ")), nil
}

// dnsCheck finds the cluster's DNS as the cluster agent does.
func dnsCheck(ctx context.Context, c client.Reader) (checked, error) {
	const name = "cluster-dns"
	found, err := clusterdns.Wiring{Service: sealaneDNS()}.Find(ctx, c)
	if err != nil {
		return checked{}, fmt.Errorf("look for what configures the cluster's DNS: %w", err)
	}
	problem := found.Unknown
	if found.Service == "" && problem == "" {
		problem = "no Service of a cluster DNS"
	}
	if problem != "" {
		return checked{Name: name, Verdict: verdictFail, Found: problem,
			Expected: "CoreDNS, kube-dns or OpenShift's as cluster DNS, which Sealane has forward its domains",
			Remedy:   "see docs/dns.md; without it forward the domains yourself"}, nil
	}
	for _, target := range found.Targets {
		if !target.Off {
			return passed(name, "Service %s; Sealane will change %s", found.Service, target.What), nil
		}
	}
	return passed(name, "Service %s", found.Service), nil
}

// inTheWayCheck looks for others that connect clusters: they answer the same ServiceExports and domain.
func inTheWayCheck(ctx context.Context, c client.Reader) (checked, error) {
	const name = "in-the-way"
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &list); err != nil {
		return checked{}, fmt.Errorf("list CustomResourceDefinitions: %w", err)
	}
	others := map[string]string{
		"submariner.io": "Submariner", "lighthouse.submariner.io": "Submariner", "net.gke.io": "GKE's fleet",
		"multicluster.crd.antrea.io": "Antrea Multi-cluster",
	}
	var found []string
	for i := range list.Items {
		if other := others[list.Items[i].Spec.Group]; other != "" && !slices.Contains(found, other) {
			found = append(found, other)
		}
	}
	if len(found) > 0 {
		slices.Sort(found)
		return checked{Name: name, Verdict: verdictFail, Found: "CRDs of " + strings.Join(found, ", "),
			Expected: "nothing else that serves ServiceExports or connects clusters",
			Remedy:   "remove it with its CRDs first; see docs/migration.md"}, nil
	}
	return passed(name, "nothing else that connects clusters"), nil
}
