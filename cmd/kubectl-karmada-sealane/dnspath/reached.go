// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/reach"
)

// tunnel is the best that the gateways report of the way to a cluster. One of which nothing is reported is used.
func (f *Facts) tunnel(cluster string) (up bool, text string) {
	if cluster == f.Cluster {
		return true, "local"
	}
	text = "no gateway of " + f.Cluster + " reports a connection"
	known := false
	for _, g := range reach.Reporting(f.Gateways, f.Now) {
		for _, c := range g.Status.Connections {
			if c.Cluster != cluster {
				continue
			}
			if c.Status == v1alpha1.ConnectionConnected {
				if c.Through != "" {
					return true, fmt.Sprintf("connected through %s and %s", g.Name, c.Through)
				}
				return true, "connected through " + g.Name
			}
			known = true
			text = strings.TrimSuffix(fmt.Sprintf("%s at %s: %s", c.Status, g.Name, c.Message), ": ")
		}
	}
	return !known, text
}

// tunnels: the clusters that export the service can be reached; one is enough.
func tunnels(f *Facts) []Step {
	var steps []Step
	var down []string
	usable := false
	for _, c := range f.sources() {
		up, text := f.tunnel(c.Cluster)
		switch {
		case !up:
			down = append(down, c.Cluster+": "+text)
			steps = append(steps, note(stepTunnel, "%s is left out of answers: %s", c.Cluster, text))
		case c.Cluster == f.Cluster:
			steps = append(steps, ok(stepTunnel, "%s is this cluster itself", c.Cluster))
			usable = true
		default:
			steps = append(steps, ok(stepTunnel, "%s: %s", c.Cluster, text))
			usable = true
		}
	}
	if usable {
		return steps
	}
	return []Step{broken(stepTunnel, "a tunnel to a cluster that exports the service", strings.Join(down, "\n"),
		fmt.Sprintf("see %s show connections -C %s", f.Plugin, f.Cluster))}
}

// nodes: the agents have programmed them all; one that is not cuts off its own pods only.
func nodes(f *Facts) []Step {
	c := meta.FindStatusCondition(f.Peering.Status.Conditions, v1alpha1.PeeringNodesProgrammed)
	if c == nil || c.Status == metav1.ConditionTrue {
		return nil
	}
	return []Step{note(stepNodes, "not every node of %s is programmed, pods there may not get through: %s",
		f.Cluster, c.Message)}
}

// endpoints: something is ready at the end of the path.
func endpoints(f *Facts) []Step {
	if f.Name.Kind == Host {
		return host(f)
	}
	counts := map[string]int{}
	for _, c := range f.sources() {
		if up, _ := f.tunnel(c.Cluster); up {
			counts[c.Cluster] = f.readyIn(c)
		}
	}
	total := sum(counts)
	if total == 0 {
		return []Step{broken(stepEndpoints, "a ready backend in a cluster that can be reached", listed(counts)+" ready",
			f.lookAtPods(counts))}
	}
	if !f.clusterSetIP() {
		return []Step{ok(stepEndpoints, "ready backends: %s", listed(counts))}
	}
	chosen := f.sliced()
	if sum(chosen) == 0 {
		remedy := "the cluster agent writes them, and has not: " + f.agentLogs()
		if f.imported().Choice != nil {
			remedy = "see whether the ServicePolicy gives all of these a weight of 0; if not, " + remedy
		}
		return []Step{broken(stepEndpoints, "EndpointSlices of the import with ready endpoints",
			"none, though there are backends: "+listed(counts), remedy)}
	}
	return []Step{ok(stepEndpoints, "ready endpoints that were chosen: %s", listed(chosen))}
}

// readyIn counts a source's ready backends. Where its ClusterIP stands for them the count is that of the
// cluster's own report.
func (f *Facts) readyIn(c *v1alpha1.ImportCluster) int {
	n := ready(f.backends(c))
	for _, e := range f.Exports {
		if e.Cluster == c.Cluster && n > 0 {
			return max(n, e.Ready)
		}
	}
	return n
}

func (f *Facts) lookAtPods(counts map[string]int) string {
	lines := make([]string, 0, len(counts))
	for _, cluster := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines,
			fmt.Sprintf("look at its pods there: kubectl --context %s -n %s get endpointslices -l kubernetes.io/service-name=%s",
				cluster, f.Name.Namespace, f.Name.Service))
	}
	return strings.Join(lines, "\n")
}

// host: a headless name of one host leads to an endpoint.
func host(f *Facts) []Step {
	all := hosts(f.backends(f.sources()[0]))
	if ips := all[f.Name.Host]; len(ips) > 0 {
		return []Step{ok(stepEndpoints, "host %s is ready: %s", f.Name.Host, strings.Join(ips, ", "))}
	}
	found := "no host is ready there"
	if len(all) > 0 {
		found = "ready hosts: " + shorten(slices.Sorted(maps.Keys(all)))
	}
	return []Step{broken(stepEndpoints,
		fmt.Sprintf("host %s to be ready in cluster %s", f.Name.Host, f.Name.Cluster), found,
		"check the name; a pod without a hostname has its address with - for . and :")}
}

// sliced counts the ready endpoints in the import's slices.
func (f *Facts) sliced() map[string]int {
	seen := map[string]map[string]bool{}
	for i := range f.Slices {
		s := &f.Slices[i]
		cluster := s.Labels[mcsv1beta1.LabelSourceCluster]
		key := cluster + " " + string(s.AddressType)
		if seen[key] == nil {
			seen[key] = map[string]bool{}
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				seen[key][e.Addresses[0]] = true
			}
		}
	}
	out := map[string]int{}
	for key, addresses := range seen {
		cluster, _, _ := strings.Cut(key, " ")
		out[cluster] = max(out[cluster], len(addresses))
	}
	return out
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func listed(counts map[string]int) string {
	parts := make([]string, 0, len(counts))
	for _, cluster := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s has %d", cluster, counts[cluster]))
	}
	return strings.Join(parts, ", ")
}

// lookUp: the cluster's own DNS answers what follows from all that.
func lookUp(f *Facts) []Step {
	if why := f.Answers.Unasked; why != "" {
		return []Step{note(LookUp, "the cluster's own DNS was not asked from here: %s", why)}
	}
	want, text := f.answer()
	if f.judge(&f.Answers, want) {
		return []Step{ok(LookUp, "the cluster's own DNS answers %s", f.Answers.text())}
	}
	expected := "the cluster's own DNS to answer " + text
	found := f.Answers.text() + "\nSealane's DNS, asked directly, answers " + f.Direct.text()
	if f.judge(&f.Direct, want) {
		return []Step{broken(LookUp, expected, found,
			fmt.Sprintf("the way from the one to the other is cut: a NetworkPolicy, kube-proxy for %s, or another server "+
				"block in the Corefile; %s -n kube-system logs -l k8s-app=kube-dns", f.DNS.IP, f.Kubectl))}
	}
	return []Step{broken(LookUp, expected, found,
		fmt.Sprintf("ask again in a few seconds; if it stays so: %s -n %s logs deploy/sealane-dns", f.Kubectl,
			v1alpha1.Namespace))}
}

// answer are the records that may be answered, in no order; nil where any record will do.
func (f *Facts) answer() (records []string, text string) {
	switch {
	case f.Name.Kind == Version:
		return nil, "the version"
	case f.Name.Protocol != "":
		return nil, "SRV records"
	case f.clusterSetIP():
		records = f.ServiceImport.Spec.IPs
	default:
		for _, c := range f.sources() {
			if up, _ := f.tunnel(c.Cluster); up {
				records = append(records, f.addresses(c)...)
			}
		}
	}
	if f.clusterIP() && f.Name.Cluster == "" {
		return records, "one of " + shorten(records)
	}
	return records, shorten(records)
}

// addresses that a source's part in the name has.
func (f *Facts) addresses(c *v1alpha1.ImportCluster) []string {
	clusterIPs, backends := f.part(c)
	if !f.headless() {
		return clusterIPs
	}
	var out []string
	for label, ips := range hosts(backends) {
		if f.Name.Host == "" || f.Name.Host == label {
			out = append(out, ips...)
		}
	}
	slices.Sort(out)
	return out
}

// judge says whether an answer is one that was to be expected. Less than everything will do: pods come and
// go between one look and the other.
func (f *Facts) judge(a *Answers, want []string) bool {
	if a.Unasked != "" || a.Err != "" || a.Rcode != "NOERROR" || len(a.Records) == 0 {
		return false
	}
	return want == nil || !slices.ContainsFunc(a.Records, func(record string) bool {
		return !slices.ContainsFunc(want, func(w string) bool { return same(record, w) })
	})
}

// same compares addresses, however they are written.
func same(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
