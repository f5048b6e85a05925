// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
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
	path := []func(*Facts) []Step{name, member, agent, corefile, clusterDNS, sealaneDNS}
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
	plan := d.Wiring.Plan(d.Found, f.Peering, f.DNS.IP)
	c := &plan.Condition
	switch {
	case c.Reason == clusterdns.ReasonNoCorefile || c.Reason == clusterdns.ReasonUnknownDNS:
		return []Step{note(stepCorefile, "%s; whether it forwards %s by other means, the look-up tells", c.Message,
			f.Name.Domain)}
	case c.Status != metav1.ConditionTrue:
		found, remedy := c.Message, "see what the page on DNS says of this reason: "+c.Reason
		if at := strings.LastIndex(found, "; "); at > 0 {
			found, remedy = found[:at], found[at+2:]
		}
		return []Step{broken(stepCorefile, expected, found, remedy)}
	case len(plan.Changes) == 0:
		return []Step{ok(stepCorefile, "%s", c.Message)}
	}
	var others []string
	for i := range plan.Changes {
		others = append(others, plan.Changes[i].What)
	}
	found := strings.Join(others, " and ") + " does not forward as Sealane would have it"
	remedy := "the cluster agent writes it anew within a second, and has not: " + f.agentLogs()
	if reported != nil && reported.Status != metav1.ConditionTrue {
		found += "\nthe cluster agent says: " + reported.Message
		if reported.Reason == clusterdns.ReasonPutBack || reported.Reason == clusterdns.ReasonNotAllowed {
			remedy = "make the change by hand, where the object is kept"
		}
	}
	if f.Agent.Ready == 0 {
		remedy = "the cluster agent writes it anew, once one of its pods is ready: " + f.pods("sealane-cluster-agent")
	}
	return []Step{broken(stepCorefile, expected, found, remedy)}
}

func clusterDNS(f *Facts) []Step {
	d := &f.ClusterDNS
	switch {
	case d.Service == "":
		return []Step{note(stepClusterDNS, "no Service was found by which pods ask the cluster's DNS")}
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
