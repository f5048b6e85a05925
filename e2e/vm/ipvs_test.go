// SPDX-License-Identifier: Apache-2.0

package vm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/vm"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// TestServicesByIPVS: kube-proxy in ipvs mode leads to imports, on every node of the importing cluster, and to the
// ClusterIP that other clusters have, on the gateways of the exporting one. The two API servers and the importing
// cluster's agent run here, kube-proxy and the nodes in the virtual machine.
func TestServicesByIPVS(t *testing.T) {
	crds, err := apiserver.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	mcsCRDs, err := apiserver.MCSCRDs()
	if err != nil {
		t.Fatal(err)
	}
	exporting, importing := start(t), start(t, crds, mcsCRDs)
	exporting.exports(t)
	importing.imports(t)
	proxy, err := lab.Tool(t.Context(), "kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	facts, err := json.Marshal(map[string]any{
		"apiServers": map[string]string{"c1": importing.inGuest(t), "c2": exporting.inGuest(t)},
		"pods":       importing.address(t, "pods"), "service": importing.address(t, "service"),
		"global": importing.address(t, "global"),
	})
	if err != nil {
		t.Fatal(err)
	}
	factsFile := filepath.Join(t.TempDir(), "facts.json")
	if err := os.WriteFile(factsFile, facts, 0o600); err != nil {
		t.Fatal(err)
	}
	// ipset knows protocols by their names.
	protocols := filepath.Join(t.TempDir(), "protocols")
	if err := os.WriteFile(protocols, []byte("tcp 6 TCP\nudp 17 UDP\nsctp 132 SCTP\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := guest(t, "release")
	g.Network, g.Modules = true, modulesOfOthers()
	g.Programs = append(g.Programs, "ipset", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save",
		"ip6tables-restore")
	g.Files = map[string]string{"/node.test": program(t, "-C", root(t), "test", "-c", "./memberagent/node"),
		"/usr/bin/kube-proxy": proxy, "/facts.json": factsFile, "/etc/protocols": protocols,
		"/c1.kubeconfig": importing.kubeconfig(t, apiServer), "/c2.kubeconfig": exporting.kubeconfig(t, apiServer)}
	g.Command = []string{"/node.test", "-test.v", "-test.run=TestServicesByIPVS", "-ipvs=/facts.json", "-slow=10"}
	boot(t, g)
}

// apiServer is where nodes find their cluster's: node.test passes on what connects there.
const apiServer = "https://127.0.0.1:6443"

// server is a cluster's API server.
type server struct {
	client.Client
	config *rest.Config
}

func start(t *testing.T, crds ...string) server {
	t.Helper()
	s := server{config: apiserver.Start(t, crds...)}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		mcs.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.Client, err = client.New(s.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return s
}

// inGuest is the server's address in the virtual machine.
func (s server) inGuest(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return vm.HostAddress + ":" + u.Port()
}

// kubeconfig writes one for an administrator who finds the server at an address.
func (s server) kubeconfig(t *testing.T, address string) string {
	t.Helper()
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: address, InsecureSkipTLSVerify: true}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: s.config.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s server) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := s.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func (s server) node(t *testing.T, name, address string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.create(t, n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	if err := s.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// Of the exported service: its ClusterIP, the address that it has where c2 is known by a block, and a pod on the
// gateway and one on the worker.
const exportedIP, globalIP = "10.99.0.80", "120.2.0.10"

var exportedPods = []string{"10.9.0.10", "10.9.2.10"}

// exports makes c2: its nodes and a Service with two pods.
func (s server) exports(t *testing.T) {
	t.Helper()
	for name, address := range map[string]string{"gw2": "172.31.1.3", "worker2": "172.31.1.6"} {
		s.node(t, name, address)
	}
	s.create(t, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "of-c2"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.0.0/16"}}})
	s.service(t, "web", exportedIP, ports(80, corev1.ProtocolTCP, corev1.ProtocolUDP), 8080, exportedPods...)
}

// ports of one number, which are named as their protocols are.
func ports(number int32, protocols ...corev1.Protocol) (out []corev1.ServicePort) {
	for _, p := range protocols {
		out = append(out, corev1.ServicePort{Name: strings.ToLower(string(p)), Protocol: p, Port: number})
	}
	return out
}

// service without selector, with endpoints at a port of these addresses.
func (s server) service(t *testing.T, name, clusterIP string, ports []corev1.ServicePort, to int32, ips ...string) {
	t.Helper()
	eventually(t, "the range of the service's address is known", func(ctx context.Context) error {
		return s.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Ports: ports}})
	})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &to})
	}
	for _, ip := range ips {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	s.create(t, slice)
}

// imports makes c1: its nodes, and what the broker tells it, of which the agent makes Services. One import has the
// pods of c2 as its endpoints, one the ClusterIP that stands for them, and one the global address.
func (s server) imports(t *testing.T) {
	t.Helper()
	for name, address := range map[string]string{"gw1": "172.31.1.1", "worker1": "172.31.1.2"} {
		s.node(t, name, address)
	}
	// What a tenant might write, to get at the overlay of the nodes.
	s.service(t, "overlay", "10.96.0.99", ports(53, corev1.ProtocolUDP), 4800, "172.31.1.1", "172.31.1.2")
	s.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}},
		&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: v1alpha1.PeeringSpec{
			Revision: 1, Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1", Shards: 1,
			Cable:          v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
			DNS:            v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}, ClusterNames: ptr.To(true)},
			HealthCheck:    v1alpha1.HealthCheckSpec{IntervalMilliseconds: 100, FailureThreshold: 3},
			RemoteClusters: []v1alpha1.RemoteCluster{{Name: "c2", Endpoints: []v1alpha1.Endpoint{}}},
			Conditions:     []metav1.Condition{},
		}},
		&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BundleName(0)}, Spec: v1alpha1.BundleSpec{
			Revision: 1, ExportConditions: []v1alpha1.ExportCondition{},
			Imports: []v1alpha1.Import{imported("global", 80, globalIP), imported("pods", 8080, exportedPods...),
				imported("service", 80, exportedIP)},
		}})
	binary := program(t, "build", "-C", root(t), "./cmd/sealane-agent")
	agent := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "cluster",
		"--kubeconfig="+s.kubeconfig(t, s.config.Host), "--leader-elect=false", "--metrics-bind-address=0",
		"--health-probe-bind-address=0")
	var log bytes.Buffer
	agent.Stdout, agent.Stderr = &log, &log
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Kill()
		_ = agent.Wait()
		if t.Failed() {
			t.Logf("the agent of c1:\n%s", log.String())
		}
	})
}

// imported is c2's service as the broker tells of it.
func imported(name string, port int32, ips ...string) v1alpha1.Import {
	backends := v1alpha1.Backends{
		Ports: []v1alpha1.BackendPort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: port},
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: port}}}
	for _, ip := range ips {
		backends.Addresses = append(backends.Addresses, v1alpha1.Backend{IP: ip, Ready: true, Serving: true, Node: "far"})
	}
	return v1alpha1.Import{Namespace: "default", Name: name,
		Clusters: []v1alpha1.ImportCluster{{Cluster: "c2", CreatedAt: metav1.Unix(1700000000, 0),
			Ports: []string{"tcp", "udp"}, ClusterIPs: []string{exportedIP}, Backends: []v1alpha1.Backends{backends}}},
		Settings: v1alpha1.ServiceSettings{Type: v1alpha1.ClusterSetIP,
			Ports: []v1alpha1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80}},
			SessionAffinity: corev1.ServiceAffinityNone, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}}}
}

// address waits for the ClusterSetIP of an import.
func (s server) address(t *testing.T, name string) (ip string) {
	t.Helper()
	eventually(t, "the import "+name, func(ctx context.Context) error {
		i := &mcs.ServiceImport{}
		if err := s.Get(ctx, types.NamespacedName{Namespace: "default", Name: name}, i); err != nil {
			return err
		}
		if len(i.Spec.IPs) != 1 {
			return fmt.Errorf("its addresses are %v: want one", i.Spec.IPs)
		}
		ip = i.Spec.IPs[0]
		return nil
	})
	return ip
}

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
