// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// containerdSocket is where it is on every machine; inside the node's mounts.
const containerdSocket = "/run/containerd/containerd.sock"

// labelGateway marks the nodes that carry the traffic between clusters.
const labelGateway = "sealane.io/gateway"

//go:embed manifests
var manifests embed.FS

// nodeFacts is what the templates of a node's files are filled with.
type nodeFacts struct {
	Name      string
	Addresses []netip.Addr
	PodCIDRs  []netip.Prefix
	// ClusterCIDRs are those of pods that kube-proxy needs not masquerade: with macvlan none, as a backend would answer
	// them directly.
	ClusterCIDRs  string
	ClusterDNS    netip.Addr
	Nameserver    netip.Addr
	KubeProxyMode string
	IPMasq        bool
	Pause         string
	Cgroup        string
	Files         string
	CNIPlugins    string
	CNI           string
	// UnderlayRanges and Hijacked are those of a node with macvlan.
	UnderlayRanges []underlayRange
	Hijacked       []string
	FakeSysctls    map[string]string
	// ProxyKubeconfig is kube-proxy's, which takes it from its file only.
	ProxyKubeconfig string
}

// kubeletSysctls are machine-wide settings that kubelet would change. In a
// node's mounts, files with the values it wants stand in their place.
func kubeletSysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

func (l *Lab) facts(i, j int) nodeFacts {
	c := l.Topology.Clusters[i]
	f := nodeFacts{
		Name:          c.Nodes[j].Name,
		PodCIDRs:      c.nodePodCIDRs(j),
		ClusterDNS:    c.dnsAddr(),
		Nameserver:    l.underlayAddr(c.IPFamilies[0]),
		KubeProxyMode: c.KubeProxyMode,
		IPMasq:        c.IPMasq,
		Pause:         imagePause,
		Cgroup:        l.cgroup() + "/" + c.Nodes[j].Name,
		Files:         l.nodePath(c.Nodes[j].Name),
		CNIPlugins:    cniPlugins,
		CNI:           c.CNI,
		FakeSysctls:   kubeletSysctls(),

		ProxyKubeconfig: l.path("pki", c.Name, "kube-proxy.kubeconfig"),
	}
	for _, family := range c.IPFamilies {
		f.Addresses = append(f.Addresses, l.nodeAddr(family, i, j))
	}
	if c.CNI != CNIBridge {
		f.CNIPlugins = l.path("cni")
	}
	if c.CNI == CNIMacvlan {
		f.PodCIDRs, f.UnderlayRanges, f.Hijacked = nil, c.underlayRanges(j), l.Topology.hijacked(i)
		return f
	}
	if len(c.PodCIDRs) == len(c.IPFamilies) {
		f.ClusterCIDRs = strings.Join(c.PodCIDRs, ",")
	}
	return f
}

// startRuntime makes a node's namespaces and starts its container runtime.
func (l *Lab) startRuntime(ctx context.Context, i, j int) error {
	f := l.facts(i, j)
	if l.Running(holderName(f.Name)) {
		return l.startContainerd(ctx, f.Name)
	}
	if err := l.writeNodeFiles(f); err != nil {
		return err
	}
	holder := []string{"unshare", "--mount", "--uts", "--propagation=private", "--", "sh", l.nodePath(f.Name, "init.sh")}
	if err := l.procs.Ensure(process{Name: holderName(f.Name), Node: f.Name, Namespaces: nsNet,
		Argv: holder}); err != nil {
		return err
	}
	err := poll(ctx, 20*time.Millisecond, func(context.Context) error {
		_, err := os.Stat(l.nodePath(f.Name, "ready"))
		return err
	})
	if err != nil {
		return fmt.Errorf("make the namespaces of %s: %w", f.Name, err)
	}
	return l.startContainerd(ctx, f.Name)
}

func (l *Lab) startContainerd(ctx context.Context, node string) error {
	err := l.procs.Ensure(process{Name: node + "-containerd", Node: node, Namespaces: nsAll,
		Argv: []string{"containerd", "--config=/etc/containerd/config.toml"}})
	if err != nil {
		return err
	}
	return poll(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		_, err := l.InNode(ctx, node, "ctr", "--address", containerdSocket, "version")
		return err
	})
}

// writeNodeFiles writes what the node's own /etc will hold.
func (l *Lab) writeNodeFiles(f nodeFacts) error {
	files := map[string]string{
		"init.sh":                        "init.sh",
		"runc.sh":                        "runc.sh",
		"etc/containerd/config.toml":     "containerd.toml",
		"etc/cni/net.d/10-lab.conflist":  "cni-" + f.CNI + ".conflist",
		"etc/kubernetes/kubelet.yaml":    "kubelet.yaml",
		"etc/kubernetes/kube-proxy.yaml": "kube-proxy.yaml",
		"etc/resolv.conf":                "resolv.conf",
		"etc/hostname":                   "hostname",
	}
	if f.CNI == CNIFlannel {
		files["etc/kube-flannel/net-conf.json"] = "flannel.json"
	}
	for path, from := range files {
		data, err := render(from, f)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if filepath.Ext(path) == ".sh" {
			mode = 0o755
		}
		if err := writeFile(l.nodePath(f.Name, path), data, mode); err != nil {
			return err
		}
	}
	for key, value := range f.FakeSysctls {
		if err := writeFile(l.nodePath(f.Name, "sysctl", key), []byte(value+"\n"), 0o444); err != nil {
			return err
		}
	}
	return nil
}

// render fills in one of the embedded templates.
func render(name string, data any) ([]byte, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"json": toJSON, "join": strings.Join}).ParseFS(manifests,
		"manifests/"+name)
	if err != nil {
		return nil, fmt.Errorf("parse template %s: %w", name, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("fill in template %s: %w", name, err)
	}
	return b.Bytes(), nil
}

func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// registerNode creates the Node object before kubelet does, so that its pod
// CIDRs are the ones the routes were made for.
func (l *Lab) registerNode(ctx context.Context, i, j int) error {
	f := l.facts(i, j)
	config, err := l.RESTConfig(l.Topology.Clusters[i].Name)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", l.Topology.Clusters[i].Name, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.Name,
		Labels: map[string]string{corev1.LabelHostname: f.Name},
		// flanneld cannot bear a node without annotations; one that kubelet has made has some.
		Annotations: map[string]string{corev1.ObjectTTLAnnotationKey: "0"}}}
	for _, p := range f.PodCIDRs {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, p.String())
	}
	if len(f.PodCIDRs) > 0 {
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	if l.Topology.Clusters[i].Nodes[j].Gateway {
		node.Labels[labelGateway] = "true"
	}
	_, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return ignoreExists(err)
}

// startNode starts kubelet and kube-proxy.
func (l *Lab) startNode(i, j int, ca *authority) error {
	c, f := l.Topology.Clusters[i], l.facts(i, j)
	kubelet := pkix.Name{CommonName: "system:node:" + f.Name, Organization: []string{"system:nodes"}}
	if err := ca.Issue(f.Name, kubelet, []string{f.Name}, f.Addresses); err != nil {
		return err
	}
	if err := ca.Kubeconfig(f.Name, c.Name, l.memberURL(i)); err != nil {
		return err
	}
	pki := func(name string) string { return l.path("pki", c.Name, name) }
	err := l.procs.Ensure(process{Name: f.Name + "-kubelet", Node: f.Name, Namespaces: nsAll, Argv: []string{
		l.tools.path("kubelet"),
		"--config=/etc/kubernetes/kubelet.yaml",
		"--kubeconfig=" + pki(f.Name+".kubeconfig"),
		"--hostname-override=" + f.Name,
		"--node-ip=" + join(f.Addresses),
		"--tls-cert-file=" + pki(f.Name+".crt"),
		"--tls-private-key-file=" + pki(f.Name+".key"),
		"--client-ca-file=" + pki("ca.crt"),
	}})
	if err != nil {
		return err
	}
	// As a pod it would be started again: some of its versions race with themselves when they begin, and panic.
	return l.procs.Ensure(process{Name: f.Name + "-kube-proxy", Node: f.Name, Namespaces: nsAll, Restarts: 2,
		Argv: []string{l.tools.path("kube-proxy"), "--config=/etc/kubernetes/kube-proxy.yaml"}})
}

func join[T fmt.Stringer](list []T) string {
	s := make([]string, len(list))
	for i, v := range list {
		s[i] = v.String()
	}
	return strings.Join(s, ",")
}

// nodesReady waits until every node of the i-th cluster is Ready.
func (l *Lab) nodesReady(ctx context.Context, i int) error {
	c := l.Topology.Clusters[i]
	config, err := l.RESTConfig(c.Name)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", c.Name, err)
	}
	return poll(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		ready := 0
		var waiting []string
		for _, n := range list.Items {
			if reason := notReady(n); reason != "" {
				waiting = append(waiting, n.Name+": "+reason)
				continue
			}
			ready++
		}
		if ready < len(c.Nodes) {
			return fmt.Errorf("%d of %d nodes ready (%s)", ready, len(c.Nodes), strings.Join(waiting, "; "))
		}
		return nil
	})
}

// notReady is why a node cannot take pods yet.
func notReady(n corev1.Node) string {
	for _, t := range n.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady {
			return "not-ready taint"
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return ""
			}
			return c.Message
		}
	}
	return "kubelet has not reported yet"
}
