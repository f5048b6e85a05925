// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/dnspath"
	"github.com/sealane-io/sealane/dataplane/plan"
	"github.com/sealane-io/sealane/internal/choice"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/reach"
	"github.com/sealane-io/sealane/lighthouse"
)

// maxListed is how many items a text lists.
const maxListed = 10

// named resolves a name as far as it leads: what must hold for a look-up, what it is answered with, and what that
// stands for.
func (x *explainer) named() []leg {
	f := x.request.Name
	whole := true
	steps := dnspath.Follow(f)
	for _, s := range steps {
		if s.Name == dnspath.LookUp && s.Verdict != dnspath.Broken {
			continue // nobody was asked; the answer follows from the objects
		}
		v := map[dnspath.Verdict]Verdict{dnspath.OK: OK, dnspath.Note: Warn, dnspath.Broken: Fail}[s.Verdict]
		whole = whole && v != Fail
		x.add(Step{At: f.Cluster, Name: s.Name, Verdict: v, Found: s.Found, Expected: s.Expected, Remedy: s.Remedy})
	}
	x.portOfName()
	if !whole || !x.portExists() {
		return nil
	}
	addresses := x.answered()
	if len(addresses) == 0 {
		return nil
	}
	im := x.from.imported(f.Name.Namespace, f.Name.Service)
	switch {
	case im == nil:
		return nil // Follow ends before
	case im.Settings.Type == v1alpha1.Headless || im.Mode == v1alpha1.ServiceModeClusterIP || f.Name.Cluster != "":
		return x.perCluster(im, addresses)
	}
	return x.behindImport(im.Namespace, im.Name, addresses[0])
}

// portOfName takes over the port that a name for SRV records has, where none is asked for.
func (x *explainer) portOfName() {
	n := &x.request.Name.Name
	im := x.from.imported(n.Namespace, n.Service)
	if im == nil || x.request.Port.Number != 0 {
		return
	}
	for _, p := range im.Settings.Ports {
		if n.Port != "" && strings.EqualFold(p.Name, n.Port) && strings.EqualFold(string(p.Protocol), n.Protocol) {
			x.request.Port = Port{Number: uint16(p.Port), Protocol: p.Protocol}
		}
	}
}

// portExists says whether the service has the port that the packet is for.
func (x *explainer) portExists() bool {
	n := &x.request.Name.Name
	im := x.from.imported(n.Namespace, n.Service)
	if im == nil || im.Settings.Type == v1alpha1.Headless {
		return true // whatever pods listen on
	}
	p, listed := servicePort(im.Settings.Ports, x.request.Port)
	if p == nil {
		x.fail(x.from.Name, stepService, fmt.Sprintf("port %s of service %s/%s", x.request.Port, n.Namespace, n.Service),
			"it has "+joinOr(listed, "none"), "use one of its ports")
	}
	return p != nil
}

// answered are the addresses that Sealane's DNS in the packet's cluster answers the name with, of families that the
// sender has.
func (x *explainer) answered() []netip.Addr {
	f, m := x.request.Name, x.from.Member
	server := lighthouse.NewOffline(lighthouse.Objects{Peering: m.Network.Peering, Bundles: m.Bundles,
		Gateways: m.Network.Gateways, ServiceImports: m.ServiceImports}, x.fleet.Now)
	var out, others []netip.Addr
	for _, rrtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		reply := server.Answer(f.Name.FQDN, rrtype)
		if f.Name.Protocol != "" {
			reply = server.Answer(f.Name.FQDN, dns.TypeSRV)
		}
		if reply == nil {
			continue
		}
		addresses := recordsOf(reply, rrtype)
		if turns := server.Turns(f.Name.FQDN, rrtype); len(turns) > 0 {
			addresses = x.turn(server, turns, rrtype)
		}
		for _, a := range addresses {
			if _, has := x.sourceOf(a); has {
				out = append(out, a)
			} else {
				others = append(others, a)
			}
		}
		if len(addresses) > 0 {
			x.ok(f.Cluster, stepAnswer, "sealane-dns answers %s %s with %s", f.Name.FQDN, dns.TypeToString[rrtype],
				clip.List(texts(addresses), maxListed))
		} else if reply.Rcode != dns.RcodeSuccess {
			x.fail(f.Cluster, stepAnswer, "an answer to "+f.Name.FQDN, dns.RcodeToString[reply.Rcode],
				"follow the name: "+x.fleet.Plugin+" diagnose dns "+f.Name.FQDN+" -C "+f.Cluster)
			return nil
		}
	}
	switch {
	case len(out) == 0 && len(others) > 0:
		x.fail(f.Cluster, stepAnswer, "an address of a family that "+x.request.From.What+" has",
			clip.List(texts(others), maxListed), "give the pod an address of that family, or the service one of the pod's")
	case len(out) == 0:
		x.fail(f.Cluster, stepAnswer, "addresses of "+f.Name.FQDN, "the name exists, and has none: "+x.withoutAnswer(),
			x.fleet.Plugin+" diagnose dns "+f.Name.FQDN+" -C "+f.Cluster)
	}
	return out
}

// turn asks as often as it takes for each cluster to have had its turn, and says how often each has it.
func (x *explainer) turn(server *lighthouse.Offline, turns map[string]int, rrtype uint16) []netip.Addr {
	all, shares := 0, make([]string, 0, len(turns))
	for _, cluster := range sortedKeys(turns) {
		all += turns[cluster]
		shares = append(shares, fmt.Sprintf("%s %d", cluster, turns[cluster]))
	}
	var out []netip.Addr
	for range all {
		for _, a := range recordsOf(server.Answer(x.request.Name.Name.FQDN, rrtype), rrtype) {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	x.ok(x.from.Name, stepChoice, "in ClusterIP mode each answer is one cluster's ClusterIP, by turns: %s",
		strings.Join(shares, ", "))
	return out
}

// withoutAnswer says why a name may have no address.
func (x *explainer) withoutAnswer() string {
	var down []string
	for cluster, status := range reach.Reports(x.from.Network.Gateways, x.fleet.Now) {
		if status != v1alpha1.ConnectionConnected {
			down = append(down, cluster)
		}
	}
	slices.Sort(down)
	if len(down) > 0 {
		return "clusters that are not connected are left out: " + strings.Join(down, ", ")
	}
	return "no cluster has a ready backend"
}

// recordsOf a reply, sorted: addresses of a type, among them those that come along with SRV records.
func recordsOf(reply *dns.Msg, rrtype uint16) []netip.Addr {
	var out []netip.Addr
	for _, rr := range slices.Concat(reply.Answer, reply.Extra) {
		var ip []byte
		switch r := rr.(type) {
		case *dns.A:
			ip = r.A.To4()
		case *dns.AAAA:
			ip = r.AAAA.To16()
		}
		if a, valid := netip.AddrFromSlice(ip); valid && rr.Header().Rrtype == rrtype && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func texts(addresses []netip.Addr) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = a.String()
	}
	return out
}

// perCluster leads to the first address of each cluster: ClusterIPs, or pods of a headless service.
func (x *explainer) perCluster(im *v1alpha1.Import, addresses []netip.Addr) []leg {
	port := x.request.Port
	if p, _ := servicePort(im.Settings.Ports, port); p != nil && im.Settings.Type != v1alpha1.Headless {
		port = Port{Number: uint16(p.Port), Protocol: p.Protocol}
	}
	var out []leg
	for _, a := range addresses {
		cluster := x.owner(a)
		if at := slices.IndexFunc(out, func(l leg) bool { return l.cluster == cluster }); at >= 0 {
			out[at].backends = append(out[at].backends, a)
			continue
		}
		out = append(out, leg{cluster: cluster, dst: a, backends: []netip.Addr{a}, port: port, what: "first " + a.String()})
	}
	return out
}

// behindImport says which clusters serve a ClusterSetIP and why, and leads to the first endpoint of each that
// kube-proxy has.
func (x *explainer) behindImport(namespace, name string, vip netip.Addr) []leg {
	im := x.from.imported(namespace, name)
	if im == nil {
		x.fail(x.from.Name, stepChoice, "an import of "+namespace+"/"+name+" by the broker", "there is none",
			x.fleet.Plugin+" show services -n "+namespace)
		return nil
	}
	p, listed := servicePort(im.Settings.Ports, x.request.Port)
	if p == nil {
		x.fail(x.from.Name, stepService, fmt.Sprintf("port %s of service %s/%s", x.request.Port, namespace, name),
			"it has "+joinOr(listed, "none"), "use one of its ports")
		return nil
	}
	have := x.endpoints(namespace, name, p.Name, plan.FamilyOf(vip))
	x.choice(im, p.Name, plan.FamilyOf(vip), have)
	if len(have) == 0 {
		x.fail(x.from.Name, stepService,
			fmt.Sprintf("EndpointSlices of the import with a ready endpoint for port %d of IPv%d", p.Port, plan.FamilyOf(vip)),
			"none: kube-proxy rejects connections to "+vip.String(),
			x.fleet.Plugin+" show services -n "+namespace+" -o wide")
		return nil
	}
	var out []leg
	for _, cluster := range sortedKeys(have) {
		first := have[cluster][0]
		l := leg{cluster: cluster, dst: first.Addr(), what: "first " + first.String(),
			port: Port{Number: first.Port(), Protocol: p.Protocol}}
		for _, e := range have[cluster] {
			l.backends = append(l.backends, e.Addr())
		}
		out = append(out, l)
	}
	counts := make([]string, len(out))
	for i, l := range out {
		counts[i] = fmt.Sprintf("%d of %s, first %s", len(have[l.cluster]), l.cluster, have[l.cluster][0])
	}
	x.ok(x.from.Name+"/"+x.node, stepService, "kube-proxy translates %s to a ready endpoint of the derived Service: %s",
		netip.AddrPortFrom(vip, uint16(p.Port)), strings.Join(counts, "; "))
	return out
}

// endpoints are the ready ones of an import for a port in a family, by cluster.
func (x *explainer) endpoints(namespace, name, port string, f plan.Family) map[string][]netip.AddrPort {
	out := map[string][]netip.AddrPort{}
	for i := range x.from.Slices {
		s := &x.from.Slices[i]
		if s.Namespace != namespace || s.Labels[mcsv1beta1.LabelServiceName] != name {
			continue
		}
		at := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
			return p.Port != nil && (p.Name == nil && port == "" || p.Name != nil && *p.Name == port)
		})
		for _, e := range s.Endpoints {
			if at < 0 || len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil && plan.FamilyOf(a) == f {
				cluster := s.Labels[mcsv1beta1.LabelSourceCluster]
				out[cluster] = append(out[cluster], netip.AddrPortFrom(a, uint16(*s.Ports[at].Port)))
			}
		}
	}
	for _, list := range out {
		slices.SortFunc(list, netip.AddrPort.Compare)
	}
	return out
}

// choice says of each exporting cluster why it serves or does not, by the rule that the cluster agent follows.
func (x *explainer) choice(im *v1alpha1.Import, port string, f plan.Family, have map[string][]netip.AddrPort) {
	reports := reach.Reports(x.from.Network.Gateways, x.fleet.Now)
	var candidates []choice.Candidate
	why := map[string]string{}
	for i := range im.Clusters {
		c := &im.Clusters[i]
		local := c.Cluster == x.from.Name
		n := x.ready(im, c, port, f)
		switch status, reported := reports[c.Cluster]; {
		case !local && reported && status != v1alpha1.ConnectionConnected:
			why[c.Cluster] = "left out, for no gateway is connected to it"
		case !slices.Contains(c.Ports, port):
			why[c.Cluster] = "left out, for it does not serve this port"
		case n == 0:
			why[c.Cluster] = "left out, for nothing is ready there"
		default:
			candidates = append(candidates, choice.Candidate{Cluster: c.Cluster, Local: local, Ready: n})
		}
	}
	shares := choice.Clusters(im.Choice, candidates)
	stale := false
	var lines []string
	for i := range im.Clusters {
		cluster := im.Clusters[i].Cluster
		at := slices.IndexFunc(shares, func(s choice.Share) bool { return s.Cluster == cluster })
		text := why[cluster]
		switch {
		case text != "":
		case at >= 0:
			text = fmt.Sprintf("serves, %s", reason(im.Choice, cluster == x.from.Name, shares[at]))
		default:
			text = "not chosen: " + passedOver(im.Choice)
		}
		stale = stale || (at >= 0) != (len(have[cluster]) > 0)
		lines = append(lines, cluster+" "+text)
	}
	s := Step{At: x.from.Name, Name: stepChoice, Verdict: OK, Found: strings.Join(lines, "\n")}
	if stale {
		s.Verdict = Warn
		s.Expected = "EndpointSlices with the clusters that serve"
		s.Remedy = fmt.Sprintf("wait a second; then see the log of the cluster agent: %s -n %s logs deploy/"+
			"sealane-cluster-agent", x.from.Kubectl, v1alpha1.Namespace)
		s.Found += "\nthe EndpointSlices have " + joinOr(sortedKeys(have), "none")
	}
	x.add(s)
}

// ready counts what a cluster has ready for a port: of this cluster as it reports itself, by its own name of the port.
func (x *explainer) ready(im *v1alpha1.Import, c *v1alpha1.ImportCluster, port string, f plan.Family) int {
	backends := c.Backends
	if own := x.from.exported(im.Namespace, im.Name); c.Cluster == x.from.Name && own != nil {
		backends = own.Backends
		for _, p := range im.Settings.Ports {
			at, _ := servicePort(own.Settings.Ports, Port{Number: uint16(p.Port), Protocol: p.Protocol})
			if p.Name == port && at != nil {
				port = at.Name
				break
			}
		}
	}
	n := len(readyBackends(backends, port, f))
	if c.ReadyBackends != nil && n > 0 {
		return max(int(*c.ReadyBackends), 1)
	}
	return n
}

// reason why a cluster serves.
func reason(policy *v1alpha1.ClusterChoice, local bool, s choice.Share) string {
	switch {
	case policy != nil && policy.Failover != nil:
		return fmt.Sprintf("by the failover of its ServicePolicy, with %d ready", s.Ready)
	case policy != nil && len(policy.Weights) > 0:
		return fmt.Sprintf("with weight %d of its ServicePolicy, %d ready", s.Weight, s.Ready)
	case local:
		return fmt.Sprintf("for it is this cluster itself, with %d ready: local backends come first", s.Ready)
	}
	return fmt.Sprintf("for this cluster has none ready itself, with %d ready", s.Ready)
}

// passedOver is why a cluster that could serve does not.
func passedOver(policy *v1alpha1.ClusterChoice) string {
	switch {
	case policy != nil && policy.Failover != nil:
		return "those before it in the failover of the ServicePolicy have enough ready backends"
	case policy != nil && len(policy.Weights) > 0:
		return "the ServicePolicy gives it no weight, and others have some"
	}
	return "this cluster itself has ready backends, and local ones come first"
}
