// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// families are those of all clusters of the topology; IPv4 is always among
// them, as the control planes listen on it.
func (t Topology) families() []string {
	for _, c := range t.Clusters {
		for _, f := range c.IPFamilies {
			if f == IPv6 {
				return []string{IPv4, IPv6}
			}
		}
	}
	return []string{IPv4}
}

// nodeFamilies are the families of a node's own addresses.
func (c Cluster) nodeFamilies() []string {
	for _, f := range c.IPFamilies {
		if f == IPv6 {
			return []string{IPv4, IPv6}
		}
	}
	return []string{IPv4}
}

// network builds the underlay: one namespace that routes between a subnet per
// cluster and the host link.
func (l *Lab) network(ctx context.Context) error {
	if len(l.netnsNames()) > 0 {
		return l.verifyNetwork()
	}
	if err := l.underlay(ctx); err != nil {
		return err
	}
	for i, c := range l.Topology.Clusters {
		for j := range c.Nodes {
			if err := l.nodeNetwork(ctx, i, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyNetwork tells whether every namespace of an earlier Up is still there.
func (l *Lab) verifyNetwork() error {
	have := map[string]bool{}
	for _, n := range l.netnsNames() {
		have[n] = true
	}
	want := []string{l.underlayNetns()}
	for _, n := range l.nodes() {
		want = append(want, l.nodeNetns(n.Name))
	}
	for _, n := range want {
		if !have[n] {
			return fmt.Errorf("network namespace %s is missing: remove the lab and start again", n)
		}
	}
	return nil
}

func (l *Lab) underlay(ctx context.Context) error {
	ns, link := l.underlayNetns(), l.hostLink()
	if err := run(ctx, "", "ip", "netns", "add", ns); err != nil {
		return err
	}
	if err := sysctls(ctx, ns, routerSysctls()...); err != nil {
		return err
	}
	host := []string{fmt.Sprintf("link add %s type veth peer name host netns %s", link, ns)}
	inside := []string{"link set lo up", "link set host up"}
	for _, f := range l.Topology.families() {
		host = append(host, fmt.Sprintf("addr add %s/%d dev %s%s", l.hostAddr(f), l.subnet(f, 0).Bits(), link, nodad(f)))
		inside = append(inside, fmt.Sprintf("addr add %s/%d dev host%s", l.underlayAddr(f), l.subnet(f, 0).Bits(), nodad(f)))
	}
	host = append(host, "link set "+link+" up")
	for _, f := range l.Topology.families() {
		host = append(host, fmt.Sprintf("route add %s via %s dev %s", l.prefix(f), l.underlayAddr(f), link))
	}
	for i, c := range l.Topology.Clusters {
		bridge := fmt.Sprintf("br%d", i+1)
		inside = append(inside, fmt.Sprintf("link add %s type bridge forward_delay 0", bridge), "link set "+bridge+" up")
		for _, f := range c.nodeFamilies() {
			inside = append(inside, fmt.Sprintf("addr add %s/%d dev %s%s", l.routerAddr(f, i), l.subnet(f, i+1).Bits(),
				bridge, nodad(f)))
		}
		inside = append(inside, l.underlayLines(i)...)
	}
	if err := ip(ctx, "", host); err != nil {
		return err
	}
	if err := ip(ctx, ns, inside); err != nil {
		return err
	}
	if !l.Topology.uses(CNIMacvlan) {
		return nil
	}
	return run(ctx, l.underlayRules(), "nsenter", "--net=/run/netns/"+ns, "--", "iptables-restore", "--noflush")
}

func (l layout) prefix(family string) netip.Prefix {
	if family == IPv4 {
		return l.prefix4()
	}
	return l.prefix6()
}

// nodad spares an address of a network that nobody else is in the wait for
// duplicate address detection.
func nodad(family string) string {
	if family == IPv6 {
		return " nodad"
	}
	return ""
}

func (l *Lab) nodeNetwork(ctx context.Context, i, j int) error {
	c := l.Topology.Clusters[i]
	ns := l.nodeNetns(c.Nodes[j].Name)
	if err := run(ctx, "", "ip", "netns", "add", ns); err != nil {
		return err
	}
	if err := sysctls(ctx, ns, routerSysctls()...); err != nil {
		return err
	}
	port := fmt.Sprintf("n%d-%d", i+1, j)
	if err := ip(ctx, l.underlayNetns(), []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, ns),
		fmt.Sprintf("link set %s master br%d up", port, i+1),
	}); err != nil {
		return err
	}
	lines := []string{"link set lo up", "link set eth0 up"}
	for _, f := range c.nodeFamilies() {
		lines = append(lines,
			fmt.Sprintf("addr add %s/%d dev eth0%s", l.nodeAddr(f, i, j), l.subnet(f, i+1).Bits(), nodad(f)),
			fmt.Sprintf("route add default via %s dev eth0", l.routerAddr(f, i)))
	}
	lines = append(lines, l.nodeLines(i, j)...)
	for k := range c.Nodes {
		if k == j || c.CNI != CNIBridge {
			continue
		}
		for _, p := range c.nodePodCIDRs(k) {
			lines = append(lines, fmt.Sprintf("route add %s via %s dev eth0", p, l.nodeAddr(familyOf(p.Addr()), i, k)))
		}
	}
	if err := ip(ctx, ns, lines); err != nil {
		return err
	}
	return l.nodeFirewall(ctx, i, ns)
}

// routerSysctls are those of a namespace that forwards, strict about source
// addresses as distributions and clouds are.
func routerSysctls() []string {
	settings := []string{
		"net.ipv4.ip_forward=1",
		"net.ipv4.conf.all.rp_filter=1",
		"net.ipv4.conf.default.rp_filter=1",
		"net.ipv6.conf.all.disable_ipv6=0",
		"net.ipv6.conf.default.disable_ipv6=0",
		"net.ipv6.conf.all.forwarding=1",
		// Refusals are prompt: nothing waits for an answer that cannot come.
		"net.ipv4.icmp_ratelimit=0",
	}
	if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); err == nil {
		settings = append(settings, "net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1")
	}
	return settings
}

// sysctls writes settings in a network namespace, without needing sysctl(8).
func sysctls(ctx context.Context, netns string, settings ...string) error {
	var script strings.Builder
	script.WriteString("set -e\n")
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		fmt.Fprintf(&script, "echo %s >/proc/sys/%s\n", value, strings.ReplaceAll(key, ".", "/"))
	}
	return run(ctx, script.String(), "nsenter", "--net=/run/netns/"+netns, "--", "sh")
}

// nodeFirewall is what a container engine and a CNI leave behind on a node:
// the FORWARD policy, accepts for the cluster's own pod traffic, and the
// masquerading of pods that talk to the control planes.
func (l *Lab) nodeFirewall(ctx context.Context, i int, ns string) error {
	for _, f := range l.Topology.Clusters[i].IPFamilies {
		tool := "iptables-restore"
		if f == IPv6 {
			tool = "ip6tables-restore"
		}
		rules := l.firewallRules(i, f)
		if err := run(ctx, rules, "nsenter", "--net=/run/netns/"+ns, "--", tool, "--noflush"); err != nil {
			return err
		}
	}
	return nil
}

// firewallRules is the input of iptables-restore for a node of the i-th cluster. Of flannel's there is the policy
// only: the rest is flannel's own. With macvlan only what goes by the pods' veth is forwarded.
func (l *Lab) firewallRules(i int, family string) string {
	c := l.Topology.Clusters[i]
	pods := prefixesOf(c.PodCIDRs, family)
	var b strings.Builder
	fmt.Fprintf(&b, "*filter\n:FORWARD %s [0:0]\n", c.ForwardPolicy)
	switch c.CNI {
	case CNIFlannel:
		b.WriteString("COMMIT\n")
		return b.String()
	case CNIMacvlan:
		b.WriteString("-A FORWARD -o mv+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n")
		b.WriteString("-A FORWARD -i mv+ -j ACCEPT\nCOMMIT\n")
		return b.String()
	}
	if c.ForwardPolicy == ForwardDrop {
		b.WriteString("-A FORWARD -o cni0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n")
		b.WriteString("-A FORWARD -i cni0 -o eth0 -j ACCEPT\n-A FORWARD -i cni0 -o cni0 -j ACCEPT\n")
		for _, from := range append(pods, l.subnet(family, i+1)) {
			fmt.Fprintf(&b, "-A FORWARD -i eth0 -o cni0 -s %s -j ACCEPT\n", from)
		}
	}
	b.WriteString("COMMIT\n*nat\n")
	for k := 0; !c.IPMasq && k <= len(l.Topology.Clusters); k++ {
		for _, p := range pods {
			if k != i+1 {
				fmt.Fprintf(&b, "-A POSTROUTING -s %s -d %s -j MASQUERADE\n", p, l.subnet(family, k))
			}
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// ip runs lines of ip(8) commands in a network namespace, or in the host's.
func ip(ctx context.Context, netns string, lines []string) error {
	args := []string{"-batch", "-"}
	if netns != "" {
		args = append([]string{"-n", netns}, args...)
	}
	return run(ctx, strings.Join(lines, "\n")+"\n", "ip", args...)
}

// run executes a short command; its output is part of the error.
func run(ctx context.Context, stdin, name string, args ...string) error {
	_, err := output(ctx, stdin, name, args...)
	return err
}

func output(ctx context.Context, stdin, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	said := string(out)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		said += string(exit.Stderr)
	}
	return out, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(said))
}
