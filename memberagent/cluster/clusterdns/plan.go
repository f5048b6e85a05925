// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Reasons of the condition DNSConfigured.
const (
	ReasonConfigured     = "Configured"
	ReasonPending        = "Pending"
	ReasonRemoved        = "Removed"
	ReasonNoCorefile     = v1alpha1.ReasonNoCorefile
	ReasonServiceMissing = "DNSServiceMissing"
	ReasonMarkersBroken  = v1alpha1.ReasonMarkersBroken
	ReasonDomainTaken    = v1alpha1.ReasonDomainTaken
	ReasonInvalidFile    = v1alpha1.ReasonInvalidCorefile
	ReasonUnknownDNS     = v1alpha1.ReasonUnknownClusterDNS
	ReasonNotAllowed     = v1alpha1.ReasonDNSNotAllowed
	ReasonPutBack        = v1alpha1.ReasonDNSPutBack
)

// Plan is what is to be done about the cluster's DNS.
type Plan struct {
	// Changes in their order.
	Changes []Change
	// Condition DNSConfigured, which is true once the changes are made.
	Condition metav1.Condition
	forward   Forward
	leaving   bool
}

// Change of one object.
type Change struct {
	Target
	// Want is the object as it should be; nil where it should go.
	Want client.Object
}

// Plan for a member whose Sealane DNS has the address to, which is not valid where there is none.
func (w Wiring) Plan(found *Found, peering *v1alpha1.Peering, to netip.Addr) Plan {
	domains := peering.Spec.DNS.Domains
	p := Plan{forward: Forward{
		Domains: domains, To: to, ClusterDomain: w.ClusterDomain, Networks: peering.Spec.Networks,
	}}
	leaving := peering.Spec.Phase == v1alpha1.MemberLeaving
	p.leaving = leaving
	if !leaving && !to.IsValid() {
		p.Condition = no(ReasonServiceMissing, "the Service %s does not exist or has no ClusterIP; it comes with "+
			"Sealane's install bundle", w.Service)
		return p
	}
	wired := false
	var by, notes []string
	var problem *metav1.Condition
	for _, t := range found.Targets {
		off := t.Off || leaving
		want, unforwarded, err := t.want(off, p.forward)
		if err != nil {
			if problem == nil {
				c := t.refused(err)
				problem = &c
			}
			if want == nil {
				continue
			}
		}
		if want == nil || !equality.Semantic.DeepEqual(t.Have, want) {
			p.Changes = append(p.Changes, Change{Target: t, Want: want})
		}
		if off || err != nil {
			continue
		}
		by, wired = append(by, t.What), wired || !t.beside
		if unforwarded != nil {
			notes = append(notes, fmt.Sprintf("; it names ClusterSetIPs by their derived Services, since %v", unforwarded))
		}
	}
	switch {
	case problem != nil:
		p.Condition = *problem
	case leaving:
		p.Condition = no(ReasonRemoved, "the cluster leaves; what Sealane added is out of the configuration of the "+
			"cluster's DNS")
	default:
		if c := w.missing(found, p.forward, wired); c != nil {
			p.Condition = *c
			break
		}
		p.Condition = metav1.Condition{
			Type: v1alpha1.PeeringDNSConfigured, Status: metav1.ConditionTrue, Reason: ReasonConfigured,
			Message: fmt.Sprintf("the cluster's DNS forwards %v to %s, by %s", domains, to, strings.Join(by, " and ")) +
				strings.Join(notes, ""),
		}
	}
	return p
}

// want is the object of a target as it should be.
func (t *Target) want(off bool, f Forward) (want client.Object, unforwarded, err error) {
	if off {
		want, err = t.driver.unwire(t.Have)
		return want, nil, err
	}
	return t.driver.wire(t.Have, f)
}

// missing is the condition where what pods ask cannot be changed; nil where it can.
func (w Wiring) missing(found *Found, f Forward, wired bool) *metav1.Condition {
	var c metav1.Condition
	switch {
	case !wired && len(found.denied) > 0:
		c = no(ReasonNotAllowed, "the cluster agent may not read %s, which configures the cluster's DNS; name it in the "+
			"ClusterRole sealane-cluster-agent by an OverridePolicy, or add this to it by hand, outside of other server "+
			"blocks:\n%s", strings.Join(found.denied, ", "), f.byHand(""))
	case found.Unknown != "":
		c = no(ReasonUnknownDNS, "%s; make it forward %v to %s, which in a Corefile is this server block:\n%s", found.Unknown,
			f.Domains, f.To, f.byHand(""))
	case !wired:
		c = no(ReasonNoCorefile, "there is no Service in kube-system with the label %s=%s, and no Corefile in ConfigMap "+
			"%s; make the cluster's DNS forward %v to the Service %s, at %s, or name the right ConfigMap with the agent's "+
			"--coredns-configmap", labelApp, dnsLabel, inKubeSystem(defaultName), f.Domains, w.Service, f.To)
	default:
		return nil
	}
	return &c
}

// refused is the condition where a target was left as it is.
func (t *Target) refused(err error) metav1.Condition {
	switch {
	case errors.Is(err, ErrDomainTaken):
		return no(ReasonDomainTaken, "%s was left as it is: %v; "+
			"use another domain in spec.dns.domains of the ClusterSet, or take that zone out of it", t.What, err)
	case errors.Is(err, ErrInvalidCorefile):
		return no(ReasonInvalidFile, "%s was left as it is: %v; correct it", t.What, err)
	}
	return no(ReasonMarkersBroken, "%s was left as it is: %v; remove every line from %q to "+
		"%q, and lone ones of these, and Sealane adds its block anew", t.What, err, begin, end)
}

func no(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.PeeringDNSConfigured, Status: metav1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf(format, args...),
	}
}
