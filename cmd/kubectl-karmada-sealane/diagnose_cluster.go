// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

const (
	subjectDNS, subjectServices              = "dns", "services"
	subjectKubeProxy, subjectCNI, subjectMTU = "kube-proxy", "cni", "mtu"
)

// checkDNS looks at what configures the cluster's DNS of each member, at its pods and at Sealane's.
func checkDNS(s *snapshot) []checked {
	var out []checked
	for _, m := range of[*v1alpha1.Member](&s.karmada) {
		p := s.member(m.Name)
		if p == nil {
			continue
		}
		found := p.byConditions(subjectDNS, "Member "+m.Name, m.Status.Conditions, judged{v1alpha1.PeeringDNSConfigured,
			verdictFail, "a cluster DNS that forwards Sealane's domains", "as the message says; see docs/dns.md"})
		if p.lacks(everything) == "" {
			found = append(found, s.dnsServes(p))
		}
		if len(found) == 0 {
			found = append(found, p.fine(subjectDNS, "as its agent reports"))
		}
		out = append(out, found...)
	}
	return out
}

// dnsServes goes by the endpoints of the two Services that a look-up passes.
func (s *snapshot) dnsServes(p *place) checked {
	if c, unsure := p.unsure(subjectDNS, "Service", "EndpointSlice", "ConfigMap", "Deployment"); unsure {
		return c
	}
	found, err := clusterdns.Wiring{Service: sealaneDNS()}.Find(context.Background(), s.reader(p))
	if err != nil || found.Service == "" {
		text := "no Service of a cluster DNS"
		if err != nil {
			text = err.Error()
		}
		return p.says(subjectDNS, verdictWarn, finding{expected: "a cluster DNS that Sealane knows", found: text,
			remedy: "see docs/dns.md; without it forward the domains yourself"})
	}
	for _, service := range []client.ObjectKey{serviceOf(found), sealaneDNS()} {
		if p.readyBehind(service) > 0 {
			continue
		}
		return p.says(subjectDNS, verdictFail, finding{expected: "a ready pod behind Service " + service.String(),
			found: "there is none", remedy: p.kubectl("-n %s get pods -o wide", service.Namespace)})
	}
	return p.fine(subjectDNS, "%s and %s have ready pods; diagnose dns NAME follows a name", found.Service, sealaneDNS())
}

// readyBehind counts the ready endpoints of a Service; those of two families count twice.
func (p *place) readyBehind(service client.ObjectKey) int {
	n := 0
	for _, slice := range of[*discoveryv1.EndpointSlice](p) {
		if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n
}

// checkServices has a line for each service that has a problem, and one for all others of a member.
func checkServices(s *snapshot) []checked {
	f := s.fleet()
	troubled := map[string]bool{}
	var out []checked
	add := func(cluster, object string, v verdict, message string) {
		troubled[cluster] = true
		out = append(out, checked{Cluster: cluster, Name: subjectServices, Verdict: v, Found: object + ": " + message,
			Expected: "services that every cluster of their scope can use, exported alike by all that export them",
			Remedy:   s.invocation + " show services; docs/service-discovery.md, docs/troubleshooting.md"})
	}
	for _, row := range serviceRows(f) {
		name := row.Namespace + "/" + row.Name
		for _, e := range row.Clusters {
			if e.Conflict != "" {
				add(e.Cluster, "ServiceExport "+name, verdictWarn, e.Conflict)
			}
			switch {
			case e.Message != "" && e.State == stateFailed:
				add(e.Cluster, "ServiceExport "+name, verdictFail, e.Message)
			case e.Message != "":
				add(e.Cluster, "ServiceExport "+name, verdictWarn, e.Message)
			}
		}
		for _, problem := range row.Problems {
			if !strings.HasPrefix(problem, importProblem) {
				add("", "Service "+name, verdictWarn, problem)
			}
		}
	}
	for _, im := range importRows(f) {
		if im.problem() {
			add(im.Cluster, "ServiceImport "+im.Namespace+"/"+im.Name, verdictFail, im.Message)
		}
	}
	for i := range s.members {
		p := &s.members[i]
		if p.lacks(everything) != "" || troubled[p.name] {
			continue
		}
		c, unsure := p.unsure(subjectServices, "ServiceExport", "ServiceImport", "EndpointSlice", "Namespace")
		if !unsure {
			services := servicesIn(p)
			c = p.fine(subjectServices, "%d exports and %d imports", len(services.exports), len(services.imports))
		}
		out = append(out, c)
	}
	return out
}

// checkKubeProxy looks at how Services are served in each member.
func checkKubeProxy(s *snapshot) []checked { return s.inMembers(subjectKubeProxy, kubeProxyCheck) }

// checkCNI looks at each member's CNI plugin, and at what of the pods' addresses it does not show.
func checkCNI(s *snapshot) []checked {
	out := s.inMembers(subjectCNI, cniCheck)
	for _, m := range of[*v1alpha1.Member](&s.karmada) {
		p := s.member(m.Name)
		if p == nil {
			continue
		}
		out = append(out, p.byConditions(subjectCNI, "Member "+m.Name, m.Status.Conditions, judged{
			v1alpha1.PeeringUnderlayRouted, verdictFail,
			"pods of an underlay that route the other clusters' networks by their nodes",
			"put the networks that it names into the plugin's settings, and make the pods anew; see docs/cni.md"})...)
		for _, n := range of[*v1alpha1.NodeNetwork](p) {
			if n.Spec.LeftOut == 0 {
				continue
			}
			out = append(out, p.says(subjectCNI, verdictFail, finding{
				expected: fmt.Sprintf("at most %d networks of pods on node %s", v1alpha1.MaxNodePodCIDRs, n.Name),
				found:    fmt.Sprintf("%d more, whose pods are not reached", n.Spec.LeftOut),
				remedy:   "give the pods of a node addresses next to each other; see docs/cni.md"}))
		}
	}
	return out
}

// inMembers runs a check of preflight in every member that could be asked.
func (s *snapshot) inMembers(subject string, run func(context.Context, client.Reader) (checked, error)) []checked {
	var out []checked
	for i := range s.members {
		p := &s.members[i]
		if p.lacks(everything) != "" {
			continue
		}
		c, err := run(context.Background(), s.reader(p))
		if err != nil {
			c = p.says(subject, verdictWarn, finding{expected: "to read what this is judged by", found: err.Error(),
				remedy: "ask for the right to list it"})
		}
		c.Cluster = p.name
		out = append(out, c)
	}
	return out
}

// checkMTU looks for tunnels that lose large packets, as probes of both ends have found.
func checkMTU(s *snapshot) []checked {
	f := s.fleet()
	var out []checked
	for i := range s.members {
		p := &s.members[i]
		if p.lacks(everything) != "" {
			continue
		}
		if c, unsure := p.unsure(subjectMTU, "Gateway"); unsure {
			out = append(out, c)
			continue
		}
		found, sizes := s.smallTunnels(f, p)
		if len(found) == 0 {
			found = append(found, p.fine(subjectMTU, "%s", sizes))
		}
		out = append(out, found...)
	}
	return out
}

// smallTunnels are those of a member that do not carry what they should; sizes says what the others carry.
func (s *snapshot) smallTunnels(f *fleet, p *place) (out []checked, sizes string) {
	var carried []string
	for _, g := range of[*v1alpha1.Gateway](p) {
		if stale(f, g) != "" || g.Status.Endpoint == nil {
			continue // diagnose connections says so
		}
		carried = append(carried, fmt.Sprintf("%s %d", g.Name, g.Status.Endpoint.MTU))
		for i := range g.Status.Connections {
			c := &g.Status.Connections[i]
			if c.Reason != v1alpha1.ReasonPathMTULow {
				continue
			}
			bad := finding{
				expected: fmt.Sprintf("packets of %d bytes to pass from %s to %s of %s", s.fullSize(g, c), g.Name, c.Gateway,
					c.Cluster),
				found: c.Message + s.otherWay(f, g, c, p.name),
				remedy: "let ICMP errors and fragments through, or set the nodes' link MTU to what the way carries: " +
					"tracepath -n " + hostOf(c.Address)}
			v := verdictWarn
			if strings.Contains(c.Message, "which every path has to carry") {
				v = verdictFail
			}
			out = append(out, p.says(subjectMTU, v, bad))
		}
		if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.GatewayFullSize); len(out) == 0 && c != nil &&
			c.Status == metav1.ConditionFalse {
			out = append(out, p.says(subjectMTU, verdictWarn, finding{expected: "packets of full size to pass from " + g.Name,
				found: c.Message, remedy: "as it says"}))
		}
	}
	if len(carried) == 0 {
		return out, "no gateway reports"
	}
	return out, "packets of full size pass: " + clip.List(carried, 5) + " bytes"
}

// fullSize is what both ends of a tunnel carry.
func (s *snapshot) fullSize(g *v1alpha1.Gateway, c *v1alpha1.Connection) int32 {
	size := g.Status.Endpoint.MTU
	if e, ok := s.gateway(c.Cluster, c.Gateway); ok && e.Status.Endpoint != nil && e.Status.Endpoint.MTU > 0 {
		size = min(size, e.Status.Endpoint.MTU)
	}
	return size
}

// otherWay says what the gateway at the other end has found.
func (s *snapshot) otherWay(f *fleet, g *v1alpha1.Gateway, c *v1alpha1.Connection, cluster string) string {
	there, ok := s.gateway(c.Cluster, c.Gateway)
	if !ok || stale(f, there) != "" {
		return "; what the other end finds is not known"
	}
	for i := range there.Status.Connections {
		if k := &there.Status.Connections[i]; k.Cluster == cluster && k.Gateway == g.Name && k.Through == "" {
			if k.Reason == v1alpha1.ReasonPathMTULow {
				return fmt.Sprintf("; from the other end %d bytes pass", k.MTU)
			}
			return "; from the other end packets of full size pass"
		}
	}
	return "; the other end has no such tunnel"
}

// gateway of a member, if that was asked.
func (s *snapshot) gateway(cluster, name string) (*v1alpha1.Gateway, bool) {
	p := s.member(cluster)
	if p == nil {
		return nil, false
	}
	return one[*v1alpha1.Gateway](p, "", name)
}

// hostOf is the address of an address and port.
func hostOf(address string) string {
	if i := strings.LastIndex(address, ":"); i > 0 {
		return strings.Trim(address[:i], "[]")
	}
	return address
}
