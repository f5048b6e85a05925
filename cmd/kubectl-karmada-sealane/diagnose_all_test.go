// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// well is a snapshot of two members in which nothing is wrong.
func well() *snapshot {
	scheme, err := newScheme()
	if err != nil {
		panic(err)
	}
	f := twoAndLost()
	now := f.now
	lease := &coordinationv1.Lease{ObjectMeta: ours(controllerName)}
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now.Add(-time.Second)))
	set := f.clusterSets[0].DeepCopy()
	set.Status.Problems = nil
	set.Status.Conditions = []metav1.Condition{condition(v1alpha1.ClusterSetReady, metav1.ConditionTrue,
		v1alpha1.ReasonReady, "")}
	s := &snapshot{taken: now, invocation: "kubectl karmada sealane", plugin: "v1.2.3", scheme: scheme,
		karmada: place{context: "karmada", kubernetes: "v1.31.0", objects: []client.Object{lease, set, sealanePolicy()}},
		host: place{context: "host", kubernetes: "v1.31.0", objects: []client.Object{
			deployment("karmada", controllerName, "registry.example.org/controller:v1.2.3", 2)}},
	}
	for _, m := range f.members[:2] {
		record := m.DeepCopy()
		record.Status.RollOut.State = v1alpha1.RollOutDone
		s.karmada.objects = append(append(s.karmada.objects, record), carriedBy(m.Name)...)
		at := metav1.NewTime(now.Add(-time.Second))
		g := m.gateways[0].DeepCopy()
		g.Status.ReportedAt = &at
		agents := &appsv1.DaemonSet{ObjectMeta: ours(nodeAgentName)}
		agents.Status.DesiredNumberScheduled, agents.Status.NumberReady = 3, 3
		s.members = append(s.members, place{name: m.Name, context: m.Name, kubernetes: "v1.31.0",
			objects: append(usual(), g, agents, agentOn(m.Name+"-w1"),
				deployment(v1alpha1.Namespace, clusterAgentName, "agent", 1), deployment(v1alpha1.Namespace, dnsName, "dns", 2))})
	}
	return s
}

func ours(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: name}
}

func deployment(namespace, name, image string, replicas int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.Replicas, d.Status.ReadyReplicas = &replicas, replicas
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
	return d
}

// the object of a type and a name in a place, whatever its namespace.
func the[T client.Object](t *testing.T, p *place, name string) T {
	t.Helper()
	for _, o := range of[T](p) {
		if o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %T %s", *new(T), name)
	panic("unreachable")
}

// without takes an object out of a place.
func (p *place) without(name string) {
	var out []client.Object
	for _, o := range p.objects {
		if o.GetName() != name {
			out = append(out, o)
		}
	}
	p.objects = out
}

// flaw is one thing that is wrong in a snapshot that is well otherwise, and what a subject says of it.
type flaw struct {
	name, subject, cluster string
	change                 func(t *testing.T, s *snapshot)
	verdict                verdict
	found, expected, toDo  string
}

// TestNothingIsWrong with a snapshot that is well: every subject has something to say, and all of it is ok.
func TestNothingIsWrong(t *testing.T) {
	for _, subject := range diagnoseSubjects() {
		all := well().check(subject)
		if len(all) == 0 {
			t.Errorf("%s says nothing", subject.name)
		}
		for _, c := range all {
			if c.Verdict != verdictOK || c.Name != subject.name || c.Found == "" {
				t.Errorf("%s: %+v", subject.name, c)
			}
		}
	}
}

// TestAControllerByDigest is of a version that nobody tells, which is nothing to repair.
func TestAControllerByDigest(t *testing.T) {
	s := well()
	the[*appsv1.Deployment](t, &s.host, controllerName).Spec.Template.Spec.Containers[0].Image = "x/controller@sha256:00"
	if c := checkVersions(s)[0]; c.Verdict != verdictOK || !strings.Contains(c.Found, untagged) {
		t.Errorf("%+v", c)
	}
}

// TestWhatIsWrongIsSaid by the subject that it belongs to, with what was expected, what was found and what to do.
func TestWhatIsWrongIsSaid(t *testing.T) {
	for _, c := range flaws() {
		t.Run(c.subject+", "+c.name, func(t *testing.T) {
			s := well()
			c.change(t, s)
			var out bytes.Buffer
			for _, subject := range diagnoseSubjects() {
				if subject.name != c.subject {
					continue
				}
				for _, got := range s.check(subject) {
					if err := report(&out, outputTable, "x", []checked{got}); (err != nil) != (got.Verdict == verdictFail) {
						t.Errorf("the report's error is %v", err)
					}
					if got.Cluster == c.cluster && got.Verdict == c.verdict && strings.Contains(got.Found, c.found) &&
						strings.Contains(got.Expected, c.expected) && strings.Contains(got.Remedy, c.toDo) {
						return
					}
				}
			}
			t.Errorf("want %s of %q with %q, %q, %q in\n%s", c.verdict, c.cluster, c.found, c.expected, c.toDo, out.String())
		})
	}
}

func flaws() []flaw {
	return slices.Concat(runningFlaws(), karmadaFlaws(), networkFlaws(), connectionFlaws(), clusterFlaws(), serviceFlaws(),
		firewallFlaws())
}

func runningFlaws() []flaw {
	const c1 = "c1"
	member := func(t *testing.T, s *snapshot) *v1alpha1.Member { return the[*v1alpha1.Member](t, &s.karmada, c1) }
	return []flaw{
		{"another controller", "versions", "", func(t *testing.T, s *snapshot) {
			the[*appsv1.Deployment](t, &s.host, controllerName).Spec.Template.Spec.Containers[0].Image = "x/controller:v1.3.0"
		}, verdictWarn, "image is v1.3.0", "version of this command, v1.2.3", "run upgrade"},
		{"an old agent", "versions", c1, func(t *testing.T, s *snapshot) {
			member(t, s).Status.AgentVersion = "v1.1.0"
		}, verdictWarn, `"v1.1.0": the cluster agent`, "v1.2.3", "run upgrade"},
		{"a roll-out", "versions", c1, func(t *testing.T, s *snapshot) {
			the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw").Status.Version = "v1.1.0"
			member(t, s).Status.RollOut.State = v1alpha1.RollOutInTurn
		}, verdictWarn, "gateway c1-gw; a roll-out goes on", "v1.2.3", "wait"},
		{"a roll-out that stopped", "versions", c1, func(t *testing.T, s *snapshot) {
			the[*v1alpha1.Gateway](t, s.member(c1), "c1-gw").Status.Version = "v1.1.0"
			member(t, s).Status.RollOut.State = v1alpha1.RollOutStopped
		}, verdictFail, "has stopped", "v1.2.3", "show rollout"},
		{"no version", "versions", c1, func(t *testing.T, s *snapshot) {
			member(t, s).Status.AgentVersion = ""
		}, verdictFail, "none has reported", "cluster agent", "kubectl --context c1 -n sealane-system get pods"},
		{"an old Kubernetes", "versions", c1, func(_ *testing.T, s *snapshot) {
			s.member(c1).kubernetes = "v1.29.4"
		}, verdictWarn, "v1.29.4", "1.30", "upgrade"},
		{"nobody leads", "deployment", "", func(_ *testing.T, s *snapshot) {
			s.taken = s.taken.Add(time.Minute)
		}, verdictFail, "renewed the Lease", "renews its Lease", "its log"},
		{"nobody ever led", "deployment", "", func(_ *testing.T, s *snapshot) {
			s.karmada.without(controllerName)
		}, verdictWarn, "no controller has run yet", "a Lease", "start the controller"},
		{"a replica of the controller", "deployment", "", func(t *testing.T, s *snapshot) {
			the[*appsv1.Deployment](t, &s.host, controllerName).Status.ReadyReplicas = 1
		}, verdictWarn, "1, of which one leads", "2 ready replicas", "--context host -n karmada describe pods"},
		{"a node agent", "deployment", c1, func(t *testing.T, s *snapshot) {
			p := s.member(c1)
			the[*appsv1.DaemonSet](t, p, nodeAgentName).Status.NumberReady = 2
			pod := &corev1.Pod{ObjectMeta: ours("sealane-node-x")}
			pod.Labels = map[string]string{"app.kubernetes.io/name": nodeAgentName}
			pod.Spec.NodeName = "c1-w1"
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			p.objects = append(p.objects, pod)
		}, verdictFail, "2 of 3; not ready: sealane-node-x on c1-w1 (ImagePullBackOff)", "every node", "describe pods"},
		{"no node agents", "deployment", c1, func(_ *testing.T, s *snapshot) {
			s.member(c1).without(nodeAgentName)
		}, verdictFail, "no DaemonSet", "every node", "diagnose karmada"},
		{"one DNS pod of two", "deployment", c1, func(t *testing.T, s *snapshot) {
			the[*appsv1.Deployment](t, s.member(c1), dnsName).Status.ReadyReplicas = 1
		}, verdictWarn, "1; not ready", "2 ready pods of sealane-dns", "describe pods"},
		{"no cluster agent", "deployment", c1, func(t *testing.T, s *snapshot) {
			the[*appsv1.Deployment](t, s.member(c1), clusterAgentName).Status.ReadyReplicas = 0
		}, verdictFail, "0; not ready", "1 ready pods of sealane-cluster-agent", "describe pods"},
		{"what the broker heard", "deployment", c1, func(t *testing.T, s *snapshot) {
			m := member(t, s)
			m.Status.Conditions = append(m.Status.Conditions, condition(v1alpha1.PeeringNodesProgrammed,
				metav1.ConditionFalse, v1alpha1.ReasonProgrammingFailed, "c1-w1: no WireGuard"))
		}, verdictFail, "ProgrammingFailed: c1-w1: no WireGuard", "every node to be programmed", "logs ds/sealane-node"},
		{"no container for IPsec", "deployment", c1, func(t *testing.T, s *snapshot) {
			m := member(t, s)
			m.Status.Conditions = append(m.Status.Conditions, condition(v1alpha1.PeeringGatewaysReady,
				metav1.ConditionFalse, v1alpha1.ReasonNoIPsecContainer, "c2 are to be reached by ipsec"))
		}, verdictFail, "NoIPsecContainer: c2 are to be reached by ipsec", "container ipsec on gateways",
			"run kubectl karmada sealane install again, with --ipsec"},
		{"gateways that are not well", "deployment", c1, func(t *testing.T, s *snapshot) {
			m := member(t, s)
			m.Status.Conditions = append(m.Status.Conditions, condition(v1alpha1.PeeringGatewaysReady,
				metav1.ConditionFalse, v1alpha1.ReasonGatewaysNotReady, "g1 is silent"))
		}, verdictFail, "GatewaysNotReady: g1 is silent", "gateways whose nodes are ready", "get gateways"},
		{"a member that cannot be asked", "deployment", c1, func(_ *testing.T, s *snapshot) {
			*s.member(c1) = place{name: c1, context: c1, unread: map[string]string{everything: "unreachable: timeout"}}
		}, verdictWarn, "unreachable: timeout", "reach its API server", "add a kubeconfig context named c1"},
		{"pods that may not be read", "deployment", c1, func(_ *testing.T, s *snapshot) {
			s.member(c1).misses("Pod", "forbidden: pods is forbidden")
		}, verdictWarn, "forbidden", "read every Pod", "ask for the right"},
	}
}
