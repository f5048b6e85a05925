// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/clusterdns"
)

// Follow returns the steps of the path in the order in which one causes the next, up to the first that is
// broken.
func Follow(f *Facts) []Step {
	path := []func(*Facts) []Step{name, member, agent, corefile, nodeLocal, clusterDNS, sealaneDNS}
	if f.Name.Kind != Version {
		path = append(path, exports, bundle, shape, namespace, serviceImport, service, tunnels, nodes, endpoints)
	}
	var steps []Step
	for _, next := range append(path, lookUp) {
		steps = append(steps, next(f)...)
		if !Whole(steps) {
			return steps
		}
	}
	return steps
}

func name(f *Facts) []Step { return []Step{ok(stepName, "%s", f.Name.describe())} }

// member: the cluster is one, and its ClusterSet has the domain.
func member(f *Facts) []Step {
	p := f.Peering
	if p == nil {
		return []Step{broken(stepMember, f.Cluster+" to be a member of a ClusterSet",
			"it has no Peering "+v1alpha1.PeeringName,
			"make it one: "+f.Plugin+" join "+f.Cluster+"; if it is, see "+f.Plugin+" show clusterset")}
	}
	if p.Spec.Phase == v1alpha1.MemberLeaving {
		return []Step{broken(stepMember, f.Cluster+" to be a member of ClusterSet "+p.Spec.ClusterSet, "it is leaving",
			"wait until it left, then join it again")}
	}
	if c := meta.FindStatusCondition(p.Spec.Conditions, v1alpha1.MemberAccepted); c != nil &&
		c.Status != metav1.ConditionTrue {
		remedy := "see " + f.Plugin + " show networks"
		if c.Reason == v1alpha1.ReasonWaitingForFacts {
			remedy = f.pods("sealane-cluster-agent")
		}
		return []Step{broken(stepMember, f.Cluster+" to be accepted by ClusterSet "+p.Spec.ClusterSet,
			c.Reason+": "+c.Message, remedy)}
	}
	if !slices.Contains(p.Spec.DNS.Domains, f.Name.Domain) {
		return []Step{broken(stepMember, "ClusterSet "+p.Spec.ClusterSet+" to answer names in "+f.Name.Domain,
			"in "+f.Cluster+" it answers "+strings.Join(p.Spec.DNS.Domains, ", "),
			"use one of these, or add the domain to spec.dns.domains of the ClusterSet")}
	}
	return []Step{ok(stepMember, "%s is a member of ClusterSet %s, which answers %s", f.Cluster, p.Spec.ClusterSet,
		strings.Join(p.Spec.DNS.Domains, ", "))}
}

// agent: without the cluster agent all stays as it is, and nothing is put right.
func agent(f *Facts) []Step {
	if f.Agent.Ready > 0 {
		return nil
	}
	found := "is not there"
	if f.Agent.Name != "" {
		found = fmt.Sprintf("has %d of %d pods ready", f.Agent.Ready, f.Agent.Desired)
	}
	return []Step{note(stepAgent, "the cluster agent %s: what follows may be old, and nobody puts it right; %s", found,
		f.pods("sealane-cluster-agent"))}
}

func (f *Facts) pods(app string) string {
	return fmt.Sprintf("%s -n %s describe pods -l app.kubernetes.io/name=%s", f.Kubectl, v1alpha1.Namespace, app)
}

func (f *Facts) agentLogs() string {
	return fmt.Sprintf("%s -n %s logs deploy/sealane-cluster-agent", f.Kubectl, v1alpha1.Namespace)
}

// corefile: the cluster's own DNS forwards the domains to Sealane's.
func corefile(f *Facts) []Step {
	d := &f.ClusterDNS
	expected := fmt.Sprintf("the cluster's own DNS to forward %s to the Service %s/sealane-dns", f.Name.Domain,
		v1alpha1.Namespace)
	reported := meta.FindStatusCondition(f.Peering.Status.Conditions, v1alpha1.PeeringDNSConfigured)
	if !f.DNS.IP.IsValid() {
		return []Step{broken(stepCorefile, expected, "there is no such Service, or it has no ClusterIP",
			"it comes with the install bundle: see kubectl get clusterpropagationpolicies on the Karmada API, and whether it "+
				"reached "+f.Cluster)}
	}
	if d.Corefile == nil {
		text := "ConfigMap " + d.ConfigMap + " has no Corefile: whether the cluster's DNS forwards " + f.Name.Domain +
			" by other means, the look-up tells"
		return []Step{note(stepCorefile, "%s", text)}
	}
	want, _, err := clusterdns.Add(*d.Corefile, clusterdns.Forward{
		Domains: f.Peering.Spec.DNS.Domains, To: f.DNS.IP, Networks: f.Peering.Spec.Networks,
	})
	switch {
	case errors.Is(err, clusterdns.ErrDomainTaken):
		return []Step{broken(stepCorefile, expected, fmt.Sprintf("ConfigMap %s: %v", d.ConfigMap, err),
			"use another domain in spec.dns.domains of the ClusterSet, or take that zone out of the Corefile")}
	case errors.Is(err, clusterdns.ErrInvalidCorefile):
		return []Step{broken(stepCorefile, expected, fmt.Sprintf("ConfigMap %s: %v", d.ConfigMap, err),
			"correct the Corefile")}
	case err != nil:
		return []Step{broken(stepCorefile, expected, fmt.Sprintf("ConfigMap %s: %v", d.ConfigMap, err),
			"remove the lines with these marks, and what is between them; Sealane then adds its block anew")}
	case want == *d.Corefile:
		return []Step{ok(stepCorefile, "ConfigMap %s forwards %s to %s, the Service sealane-dns", d.ConfigMap,
			f.Name.Domain, f.DNS.IP)}
	}
	found := "Sealane's block in the Corefile of ConfigMap " + d.ConfigMap + " is another than it should be"
	if without, err := clusterdns.Remove(*d.Corefile); err == nil && without == *d.Corefile {
		found = "the Corefile in ConfigMap " + d.ConfigMap + " has no block of Sealane's"
	}
	if reported != nil && reported.Status != metav1.ConditionTrue {
		found += "\nthe cluster agent says: " + reported.Message
	}
	remedy := "the cluster agent writes it anew within a second, and has not: " + f.agentLogs()
	if f.Agent.Ready == 0 {
		remedy = "the cluster agent writes it anew, once one of its pods is ready: " + f.pods("sealane-cluster-agent")
	}
	return []Step{broken(stepCorefile, expected, found, remedy)}
}

// nodeLocal: NodeLocal DNSCache stands before the cluster's DNS and sends what it does not know elsewhere.
func nodeLocal(f *Facts) []Step {
	if f.ClusterDNS.NodeLocal == nil {
		return nil
	}
	if clusterdns.HasBlock(*f.ClusterDNS.NodeLocal, f.Name.Domain) {
		return []Step{ok(stepNodeLocal, "NodeLocal DNSCache has a server block for %s", f.Name.Domain)}
	}
	return []Step{broken(stepNodeLocal, "the Corefile of NodeLocal DNSCache, which pods ask, to forward "+f.Name.Domain,
		"ConfigMap kube-system/node-local-dns has no server block for it: such names go to the nodes' own name servers",
		"add one like that of the cluster's own domain, which forwards to the cluster's DNS: the page on DNS has it")}
}

func clusterDNS(f *Facts) []Step {
	d := &f.ClusterDNS
	switch {
	case d.Service == "":
		return []Step{note(stepClusterDNS, "there is no Service kube-system/kube-dns, by which clusters name their DNS")}
	case d.Ready == 0:
		return []Step{broken(stepClusterDNS, "pods of the cluster's own DNS to be ready",
			"the Service "+d.Service+" has no ready endpoint",
			f.Kubectl+" -n kube-system describe pods -l k8s-app=kube-dns")}
	}
	return []Step{ok(stepClusterDNS, "ready endpoints of the Service %s: %d", d.Service, d.Ready)}
}

func sealaneDNS(f *Facts) []Step {
	d := &f.DNS
	switch {
	case d.Name == "":
		return []Step{broken(stepSealaneDNS, fmt.Sprintf("the Deployment %s/sealane-dns", v1alpha1.Namespace),
			"there is none",
			"it comes with the install bundle: see kubectl get clusterpropagationpolicies on the Karmada API, and whether it "+
				"reached "+f.Cluster)}
	case d.Ready == 0 && d.Desired == 0:
		return []Step{broken(stepSealaneDNS, "pods of Sealane's DNS to be ready", "Deployment "+d.Name+" is scaled to 0",
			fmt.Sprintf("%s -n %s scale deployment sealane-dns --replicas=2", f.Kubectl, v1alpha1.Namespace))}
	case d.Ready == 0:
		return []Step{broken(stepSealaneDNS, "pods of Sealane's DNS to be ready",
			fmt.Sprintf("none of %d of Deployment %s is", d.Desired, d.Name), f.pods("sealane-dns"))}
	case d.Ready < d.Desired:
		return []Step{note(stepSealaneDNS, "%d of %d pods of Deployment %s are ready", d.Ready, d.Desired, d.Name)}
	}
	return []Step{ok(stepSealaneDNS, "%d of %d pods of Deployment %s are ready", d.Ready, d.Desired, d.Name)}
}
