// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestPreflightOfIPsec: nothing is said of it until a ClusterSet or --ipsec asks for it. Then what it needs is missing,
// as a user finds who chose the driver and forgot install --ipsec, and is there after the command that it names.
func TestPreflightOfIPsec(t *testing.T) {
	k := newKarmada(t)
	k.kubeconfig = writeKubeconfig(t, server, "karmada", "c1", "c2")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	k.temporary(t, node)
	node.Status.NodeInfo.KernelVersion, node.Status.NodeInfo.OperatingSystem = "4.18.0-553.el8.x86_64", "linux"
	if err := k.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	judges := func(kernel, agent, port verdict, args ...string) {
		t.Helper()
		out, _ := k.plugin(t, append([]string{"preflight", "-C", "c1", "-o", "json"}, args...)...)
		got := verdictsOf(t, out)
		for name, want := range map[string]verdict{"kernel": kernel, "agent": agent, "port": port} {
			if got["c1/ipsec-"+name] != want {
				t.Errorf("%v: ipsec-%s is %q, want %q", args, name, got["c1/ipsec-"+name], want)
			}
		}
	}
	judges("", "", "")
	judges(verdictFail, verdictOK, verdictOK, "--ipsec")
	k.install(t, "-C", "c1,c2")
	judges("", "", "")
	judges(verdictFail, verdictFail, verdictOK, "--ipsec")
	set := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	k.get(t, set)
	set.Spec.Cable.Driver = v1alpha1.CableIPsec
	if err := k.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	judges(verdictFail, verdictFail, verdictOK)
	out, code := k.plugin(t, "preflight", "-C", "c1")
	for _, text := range []string{`old has "4.18.0-553.el8.x86_64"`, "Linux 5.2 or later", "sealane.io/gateway=true",
		"container ipsec, by which c2", "installed without --ipsec", "install again, with --ipsec", "UDP 4534"} {
		if code == 0 || !strings.Contains(out, text) {
			t.Errorf("exit code %d, or no %q", code, text)
		}
	}
	k.install(t, "-C", "c1,c2", "--ipsec")
	judges(verdictFail, verdictOK, verdictOK)
}

func TestIPsecKernels(t *testing.T) {
	node := func(name, kernel string, addresses ...string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimSuffix(name, "+gw")}}
		if strings.HasSuffix(name, "+gw") {
			n.Labels = map[string]string{v1alpha1.LabelGateway: "true"}
		}
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.OperatingSystem = kernel, "linux"
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		return n
	}
	windows := node("win", "10.0.20348")
	windows.Status.NodeInfo.OperatingSystem = "windows"
	pods := node("n1", "6.8.0")
	pods.Spec.PodCIDRs = []string{"10.8.0.0/24", "fd00:8::/64"}
	unnamed := node("n1", "4.19.0")
	unnamed.Status.NodeInfo.OperatingSystem = "" // as before its kubelet has said it
	g1 := []v1alpha1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "g1"}}}
	for _, c := range []struct {
		name     string
		nodes    []corev1.Node
		gateways []v1alpha1.Gateway
		verdict  verdict
		found    string
	}{
		{"new enough", []corev1.Node{node("n1", "5.2.0-1-amd64", "10.0.0.1")}, nil, verdictOK,
			"cannot be seen from here of n1"},
		{"with IPv6", []corev1.Node{node("n1", "6.8.0", "10.0.0.1", "fd00::1")}, nil, verdictOK,
			"shows that its kernel has IPv6"},
		{"with IPv6 of pods", []corev1.Node{pods}, nil, verdictOK, "shows that its kernel has IPv6"},
		{"TUN", []corev1.Node{node("n1", "6.8.0")}, nil, verdictOK, "/dev/net/tun cannot be seen"},
		{"too old", []corev1.Node{node("n1", "5.1.21")}, nil, verdictFail, `n1 has "5.1.21"`},
		{"a gateway too old", []corev1.Node{node("g1", "4.19.0"), node("n1", "6.8.0")}, g1, verdictFail, "g1 has"},
		{"a labelled one too old", []corev1.Node{node("n1+gw", "4.19.0"), node("n2", "6.8.0")}, nil, verdictFail, "n1 has"},
		{"a gateway that is well", []corev1.Node{node("g1", "6.8.0"), node("n1", "4.19.0")}, g1, verdictOK, "Linux 5.2"},
		{"one of two that may be", []corev1.Node{node("n1", "4.19.0"), node("n2", "6.8.0")}, nil, verdictWarn,
			`n1 has "4.19.0"; no gateway is chosen yet`},
		{"one of two gateways too old", []corev1.Node{node("n1+gw", "4.19.0"), node("g1", "6.8.0")}, g1, verdictFail,
			`n1 has "4.19.0"`},
		{"no system", []corev1.Node{unnamed}, nil, verdictFail, `n1 has "4.19.0"`},
		{"no version", []corev1.Node{node("n1", "")}, nil, verdictFail, `n1 has ""`},
		{"Windows alone", []corev1.Node{windows}, nil, verdictFail, "no node"},
		{"Windows too", []corev1.Node{windows, node("n1", "6.8.0")}, nil, verdictOK, "Linux 5.2"},
	} {
		got := ipsecKernelCheck(c.nodes, c.gateways, "m1")
		if got.Verdict != c.verdict || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v, want %s with %q", c.name, got, c.verdict, c.found)
		}
		if ok := got.Verdict == verdictOK; ok != (got.Expected == "") || ok != (got.Remedy == "") {
			t.Errorf("%s: expected %q, to do %q", c.name, got.Expected, got.Remedy)
		}
	}
}

func TestIPsecContainer(t *testing.T) {
	for _, c := range []struct {
		name            string
		b               byIPsec
		installed, bare bool
		verdict         verdict
		found, toDo     string
	}{
		{"nothing is installed", byIPsec{}, false, false, verdictOK, "not installed yet", ""},
		{"installed without, and not there yet", byIPsec{installed: true, bare: true}, false, false, verdictFail,
			"installed without --ipsec", "kubectl karmada sealane install again, with --ipsec"},
		{"installed without", byIPsec{installed: true, bare: true, with: []string{"c2"}}, true, true, verdictFail,
			"what went by WireGuard before goes on", "or give these pairs the driver wireguard"},
		{"the cluster alone has agents", byIPsec{}, true, true, verdictFail, "installed without --ipsec", "install again"},
		{"on its way", byIPsec{installed: true}, true, true, verdictWarn, "the Karmada API has it", "show rollout"},
		{"installed with, and not there yet", byIPsec{installed: true}, false, false, verdictOK, "comes with", ""},
		{"installed with", byIPsec{installed: true}, true, false, verdictOK, "have the container ipsec", ""},
	} {
		got := c.b.agentCheck(c.installed, c.bare, "kubectl karmada sealane")
		if got.Verdict != c.verdict || !strings.Contains(got.Found, c.found) || !strings.Contains(got.Remedy, c.toDo) {
			t.Errorf("%s: %+v", c.name, got)
		}
		ofPairs := got.Verdict == verdictFail && len(c.b.with) > 0
		if told := strings.Contains(got.Found+got.Remedy, "these "); told != ofPairs {
			t.Errorf("%s: speaks of pairs: %t: %+v", c.name, told, got)
		}
	}
}
