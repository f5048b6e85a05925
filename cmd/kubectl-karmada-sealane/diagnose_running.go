// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const subjectVersions, subjectDeployment = "versions", "deployment"

// leastKubernetes is the first release with the admission policies that bound a stolen token.
const leastKubernetes = "1.30.0"

// checkVersions compares all parts with this command.
func checkVersions(s *snapshot) []checked {
	out := []checked{s.controllerOfVersion()}
	if c, bad := s.karmada.ofKubernetes(); bad {
		out = append(out, c)
	}
	for _, m := range of[*v1alpha1.Member](&s.karmada) {
		p := s.member(m.Name)
		if p == nil {
			continue
		}
		out = append(out, s.agentsOfVersion(p, m))
		if c, bad := p.ofKubernetes(); bad {
			out = append(out, c)
		}
	}
	return out
}

// controllerOfVersion goes by the tag of the image, where that is a version.
func (s *snapshot) controllerOfVersion() checked {
	d, found := one[*appsv1.Deployment](&s.host, s.hostNamespace(), controllerName)
	if !found || imageIn(d.Spec.Template.Spec) == "" {
		return s.karmada.fine(subjectVersions, "this command is %s; the controller's Deployment was not found: %s", s.plugin,
			cmp.Or(s.host.lacks("Deployment"), "it runs elsewhere"))
	}
	tag := imageTag(imageIn(d.Spec.Template.Spec))
	if tag == "" {
		return s.karmada.fine(subjectVersions, "this command is %s; of the controller, %s", s.plugin, untagged)
	}
	if _, err := utilversion.ParseSemantic(tag); err == nil && tag != s.plugin {
		return s.karmada.says(subjectVersions, verdictWarn, finding{
			expected: "a controller of the version of this command, " + s.plugin, found: "the controller's image is " + tag,
			remedy: "run upgrade with the command of the version that is meant, or use the command of " + tag})
	}
	return s.karmada.fine(subjectVersions, "this command is %s, and the controller's image is tagged %s", s.plugin, tag)
}

// hostNamespace is where the controller's Deployment was looked for.
func (s *snapshot) hostNamespace() string {
	for _, d := range of[*appsv1.Deployment](&s.host) {
		if d.Name == controllerName {
			return d.Namespace
		}
	}
	return ""
}

func (p *place) ofKubernetes() (checked, bool) {
	if p.kubernetes == "" {
		return checked{}, false
	}
	v, err := utilversion.ParseGeneric(p.kubernetes)
	if err == nil && v.AtLeast(utilversion.MustParseGeneric(leastKubernetes)) {
		return checked{}, false
	}
	return p.says(subjectVersions, verdictWarn, finding{
		expected: "Kubernetes 1.30 or later, for the admission policies that bound a stolen token", found: p.kubernetes,
		remedy: "upgrade Kubernetes; Sealane works without the policies"}), true
}

// agentsOfVersion compares a member's agents with this command. A roll-out that goes on needs nobody.
func (s *snapshot) agentsOfVersion(p *place, m *v1alpha1.Member) checked {
	if m.Status.AgentVersion == "" {
		return p.says(subjectVersions, verdictFail, finding{expected: "a cluster agent that reports its version",
			found:  "none has reported to the Karmada API",
			remedy: p.kubectl("-n %s get pods; and see diagnose deployment and karmada", v1alpha1.Namespace)})
	}
	others := map[string][]string{}
	add := func(version, what string) {
		if version != s.plugin && version != "" {
			others[version] = append(others[version], what)
		}
	}
	add(m.Status.AgentVersion, "the cluster agent")
	gateways := of[*v1alpha1.Gateway](p)
	for _, g := range gateways {
		add(g.Status.Version, "gateway "+g.Name)
	}
	if len(others) == 0 {
		return p.fine(subjectVersions, "the cluster agent and %d gateways are %s", len(gateways), s.plugin)
	}
	var found []string
	for version, what := range others {
		found = append(found, clip.Quote(version)+": "+clip.List(what, 5))
	}
	slices.Sort(found)
	bad := finding{expected: "agents of the version of this command, " + s.plugin, found: strings.Join(found, "; "),
		remedy: "run upgrade with the command of the version that is meant, or use the command of that version"}
	r := m.Status.RollOut
	switch {
	case r != nil && r.State == v1alpha1.RollOutStopped:
		bad.found += "; the roll-out has stopped: " + r.Message
		bad.remedy = "see " + s.invocation + " show rollout: repair what it names, and it goes on"
		return p.says(subjectVersions, verdictFail, bad)
	case r != nil && r.State != v1alpha1.RollOutDone:
		bad.found += "; a roll-out goes on"
		bad.remedy = "wait; " + s.invocation + " show rollout says how far it has come"
	}
	return p.says(subjectVersions, verdictWarn, bad)
}

// checkDeployment looks at what runs: the controller, and in each member the agents and Sealane's DNS.
func checkDeployment(s *snapshot) []checked {
	out := []checked{s.controllerRuns()}
	for _, m := range of[*v1alpha1.Member](&s.karmada) {
		p := s.member(m.Name)
		if p == nil {
			continue
		}
		found := p.byConditions(subjectDeployment, "Member "+m.Name, m.Status.Conditions,
			judged{v1alpha1.PeeringAgentsRunning, verdictFail, "every pod of the node agents to run",
				p.kubectl("-n %s get pods -o wide", v1alpha1.Namespace)},
			judged{v1alpha1.PeeringNodesProgrammed, verdictFail, "every node to be programmed by its agent",
				p.kubectl("-n %s logs ds/sealane-node --prefix", v1alpha1.Namespace)},
			s.gatewaysReady(p, m))
		if p.lacks(everything) == "" {
			found = append(found, p.workloadsRun()...)
		}
		if len(found) == 0 {
			found = append(found, p.fine(subjectDeployment, "as its agent reports"))
		}
		out = append(out, found...)
	}
	return out
}

// gatewaysReady says what is expected of a member's gateways: of those that are well, the container that the driver of
// their cables needs.
func (s *snapshot) gatewaysReady(p *place, m *v1alpha1.Member) judged {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.PeeringGatewaysReady)
	if c != nil && c.Reason == v1alpha1.ReasonNoIPsecContainer {
		return judged{v1alpha1.PeeringGatewaysReady, verdictFail,
			"node agents with the container " + ipsecContainer + " on gateways of pairs that are to be reached by ipsec",
			"run " + s.invocation + " install again, with --ipsec beside the flags of the first time, or give the pairs the " +
				"driver wireguard; what went by WireGuard before goes on"}
	}
	return judged{v1alpha1.PeeringGatewaysReady, verdictFail,
		"gateways whose nodes are ready and whose agents are heard of",
		p.kubectl("get gateways; and see docs/high-availability.md")}
}

// controllerRuns goes by the Lease, and by the Deployment where that is.
func (s *snapshot) controllerRuns() checked {
	f := s.fleet()
	if text := f.leaderless(); text != "" {
		return s.karmada.says(subjectDeployment, verdictFail, finding{
			expected: "a sealane-controller that renews its Lease every 2 s", found: text,
			remedy: "see that it runs, and its log; where the Karmada API rejects its token, run install again"})
	}
	_, leads := one[*coordinationv1.Lease](&s.karmada, v1alpha1.Namespace, controllerName)
	d, found := one[*appsv1.Deployment](&s.host, s.hostNamespace(), controllerName)
	want := int32(1)
	if found {
		want = ptr.Deref(d.Spec.Replicas, 1)
	}
	switch {
	case !leads:
		return s.karmada.says(subjectDeployment, verdictWarn, finding{
			expected: "a Lease " + v1alpha1.Namespace + "/" + controllerName + ", by which the controller shows that it runs",
			found: cmp.Or(s.karmada.lacks("Lease"), "there is none: no controller has run yet, or it runs without leader "+
				"election"),
			remedy: "start the controller, or see its log"})
	case found && d.Status.ReadyReplicas < want:
		return s.karmada.says(subjectDeployment, verdictWarn, finding{
			expected: fmt.Sprintf("%d ready replicas of the controller", want),
			found:    fmt.Sprintf("%d, of which one leads", d.Status.ReadyReplicas),
			remedy:   s.host.kubectl("-n %s describe pods", d.Namespace)})
	case found:
		return s.karmada.fine(subjectDeployment, "%d replicas of the controller are ready, and one leads",
			d.Status.ReadyReplicas)
	}
	return s.karmada.fine(subjectDeployment, "a controller leads")
}

// workloadsRun looks at the workloads in a member itself.
func (p *place) workloadsRun() []checked {
	if c, unsure := p.unsure(subjectDeployment, "DaemonSet", "Deployment", "Pod"); unsure {
		return []checked{c}
	}
	out := []checked{p.nodeAgentsRun()}
	for _, name := range []string{clusterAgentName, dnsName} {
		out = append(out, p.deploymentRuns(name))
	}
	return out
}

const nodeAgentName = "sealane-node"

func (p *place) nodeAgentsRun() checked {
	look := p.kubectl("-n %s describe pods -l app.kubernetes.io/name=%s", v1alpha1.Namespace, nodeAgentName)
	expected := "an agent that is ready on every node that runs Linux"
	set, found := one[*appsv1.DaemonSet](p, v1alpha1.Namespace, nodeAgentName)
	if !found || set.Status.DesiredNumberScheduled == 0 {
		text := fmt.Sprintf("no DaemonSet %s/%s", v1alpha1.Namespace, nodeAgentName)
		if found {
			text = "the DaemonSet wants no pod: it matches no node"
		}
		return p.says(subjectDeployment, verdictFail, finding{expected: expected, found: text,
			remedy: "see diagnose karmada: Karmada brings it"})
	}
	if set.Status.NumberReady < set.Status.DesiredNumberScheduled {
		return p.says(subjectDeployment, verdictFail, finding{expected: expected,
			found: fmt.Sprintf("%d of %d; not ready: %s", set.Status.NumberReady, set.Status.DesiredNumberScheduled,
				cmp.Or(clip.List(p.unready(nodeAgentName), 5), "pods that are yet to be made")), remedy: look})
	}
	return p.fine(subjectDeployment, "%d node agents are ready", set.Status.NumberReady)
}

// deploymentRuns fails where none of the replicas is ready, and warns where some are not.
func (p *place) deploymentRuns(name string) checked {
	d, found := one[*appsv1.Deployment](p, v1alpha1.Namespace, name)
	want := int32(1)
	if found {
		want = ptr.Deref(d.Spec.Replicas, 1)
	}
	bad := finding{expected: fmt.Sprintf("%d ready pods of %s", want, name),
		found:  fmt.Sprintf("no Deployment %s/%s", v1alpha1.Namespace, name),
		remedy: "see diagnose karmada: Karmada brings it"}
	switch {
	case !found:
		return p.says(subjectDeployment, verdictFail, bad)
	case d.Status.ReadyReplicas >= want && want > 0:
		return p.fine(subjectDeployment, "%d pods of %s are ready", d.Status.ReadyReplicas, name)
	}
	bad.found = fmt.Sprintf("%d; not ready: %s", d.Status.ReadyReplicas, cmp.Or(clip.List(p.unready(name), 5),
		"pods that are yet to be made"))
	bad.remedy = p.kubectl("-n %s describe pods -l app.kubernetes.io/name=%s", v1alpha1.Namespace, name)
	if d.Status.ReadyReplicas > 0 {
		return p.says(subjectDeployment, verdictWarn, bad)
	}
	return p.says(subjectDeployment, verdictFail, bad)
}

// unready are the pods of a workload that are not ready, each with its node and why.
func (p *place) unready(name string) []string {
	var out []string
	for _, pod := range of[*corev1.Pod](p) {
		if pod.Labels["app.kubernetes.io/name"] != name || pod.DeletionTimestamp != nil {
			continue
		}
		why := string(pod.Status.Phase)
		ready := false
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				ready = c.Status == corev1.ConditionTrue
				why = cmp.Or(c.Reason, why)
			}
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				why = c.Message
			}
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				why = c.State.Waiting.Reason
			}
		}
		if !ready {
			out = append(out, fmt.Sprintf("%s on %s (%s)", pod.Name, cmp.Or(pod.Spec.NodeName, "no node"), why))
		}
	}
	return out
}
