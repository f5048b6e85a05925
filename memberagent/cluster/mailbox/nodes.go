// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	gatewayset "github.com/sealane-io/sealane/memberagent/cluster/gateways"
)

// nodeDaemonSet is the name of the node agents' DaemonSet, and ipsecContainer that of the container for cables by
// IPsec, which is there if it was asked for.
const nodeDaemonSet, ipsecContainer = "sealane-node", "ipsec"

// Reasons of v1alpha1.PeeringNodesProgrammed, PeeringAgentsRunning and PeeringNetworksAccepted.
const (
	reasonProgrammed  = "Programmed"
	reasonProgramming = "Programming"
	reasonAccepted    = "Accepted"
	reasonRunning     = "Running"
	reasonStarting    = "Starting"
)

// nodeAgent is one pod of the DaemonSet, and what its conditions say of its node.
type nodeAgent struct {
	pod, node string
	// programmed is the reason of v1alpha1.PodNodeProgrammed, empty before the agent has set it; message is
	// the condition's.
	programmed, message string
	// refused is the message of v1alpha1.PodNetworksAccepted, where that is false.
	refused string
	// unready says that the kubelet, or who speaks for one that is gone, finds the pod not ready: what its conditions say
	// is of the past.
	unready bool
	// started is false until the agent's process works, or has rehearsed to and waits for the one before it to end;
	// failing says why it will not, unless a person does something.
	started bool
	failing string
	// ending says that the pod is being deleted.
	ending bool
	// revision of the DaemonSet that the pod is of, and whether it has taken its node over.
	revision string
	took     bool
	// created is when the pod was made, turned when its agent last said whether it programs the node: Unix time.
	created, turned int64
	// crashing says that agents of the pod have died, one after the other.
	crashing bool
	// waits says that the agent waits for another to end, and queued that it is another gateway's turn.
	waits, queued bool
	// key is what the agent publishes of its node; zero before it has.
	key v1alpha1.NodeKey
	// reached is the message of v1alpha1.PodNodesReached.
	reached string
	// bare says that the pod is known to have no container for cables by IPsec.
	bare bool
}

// maxFailing bounds, in bytes, what is told of why a pod does not run.
const maxFailing = 256

// nodeAgents lists the pods of the DaemonSet by name, how many there should be, which is one for each node that
// the DaemonSet is for, and how many of them are yet to be made from its present template.
func nodeAgents(ctx context.Context, cached, live client.Reader) (agents []nodeAgent, desired,
	outdated int, err error) {
	if agents, err = agentPods(ctx, cached); err != nil {
		return nil, 0, 0, err
	}
	set := &appsv1.DaemonSet{}
	err = live.Get(ctx, types.NamespacedName{Namespace: v1alpha1.Namespace, Name: nodeDaemonSet}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, 0, 0, fmt.Errorf("get DaemonSet %s: %w", nodeDaemonSet, err)
	}
	desired = int(set.Status.DesiredNumberScheduled)
	outdated = desired - int(set.Status.UpdatedNumberScheduled)
	if set.Status.ObservedGeneration < set.Generation {
		outdated = desired
	}
	return agents, desired, outdated, nil
}

// agentPods lists the pods of the DaemonSet by name.
func agentPods(ctx context.Context, cached client.Reader) (agents []nodeAgent, err error) {
	pods := &corev1.PodList{}
	if err := cached.List(ctx, pods, client.InNamespace(v1alpha1.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		if ofNodeAgent(&pods.Items[i]) {
			agents = append(agents, agentOf(&pods.Items[i]))
		}
	}
	slices.SortFunc(agents, func(a, b nodeAgent) int { return strings.Compare(a.pod, b.pod) })
	return agents, nil
}

// Agents returns what is known of the agents of each node.
func Agents(ctx context.Context, cached client.Reader) (map[string]gatewayset.NodeAgent, error) {
	agents, err := agentPods(ctx, cached)
	out := make(map[string]gatewayset.NodeAgent, len(agents))
	for _, a := range agents {
		if a.ending {
			continue
		}
		n := out[a.node]
		if a.waits {
			n.Next, n.Queued = a.revision, a.queued
		} else {
			n.Revision = a.revision
		}
		n.Programmed = n.Programmed || a.programmed == v1alpha1.ReasonNodeProgrammed && !a.unready
		out[a.node] = n
	}
	return out, err
}

func ofNodeAgent(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" && o.Name == nodeDaemonSet
	})
}

func agentOf(p *corev1.Pod) nodeAgent {
	a := nodeAgent{pod: p.Name, node: nodeOf(p), ending: p.DeletionTimestamp != nil,
		revision: p.Labels[appsv1.ControllerRevisionHashLabelKey], waits: true, created: p.CreationTimestamp.Unix()}
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady:
			a.unready = c.Status != corev1.ConditionTrue
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			a.failing = clip.Text(c.Reason+": "+c.Message, maxFailing)
		case c.Type == v1alpha1.PodMayProgram:
			a.turned = c.LastTransitionTime.Unix()
			a.started, a.took = c.Status == corev1.ConditionTrue, c.Reason == v1alpha1.ReasonProgramming
			a.waits, a.queued = !a.took && c.Reason != v1alpha1.ReasonCrashing, c.Reason == v1alpha1.ReasonQueued
			if c.Reason == v1alpha1.ReasonNotRehearsed || c.Reason == v1alpha1.ReasonCrashing {
				a.failing, a.crashing = clip.Text(c.Reason+": "+c.Message, maxFailing), c.Reason == v1alpha1.ReasonCrashing
			}
		case c.Type == v1alpha1.PodNodeProgrammed:
			a.programmed, a.message = c.Reason, c.Message
		case c.Type == v1alpha1.PodNetworksAccepted && c.Status == corev1.ConditionFalse:
			a.refused = c.Message
		case c.Type == v1alpha1.PodNodeKey && json.Unmarshal([]byte(c.Message), &a.key) != nil:
			a.key = v1alpha1.NodeKey{}
		case c.Type == v1alpha1.PodNodesReached:
			a.reached = c.Message
		}
	}
	a.bare = len(p.Status.ContainerStatuses) > 0
	for _, s := range p.Status.ContainerStatuses {
		a.bare = a.bare && s.Name != ipsecContainer
		w, ended := s.State.Waiting, s.LastTerminationState.Terminated
		switch {
		case s.State.Running != nil && a.started:
		case s.RestartCount > 1 && ended != nil: // the same between two attempts and during one
			a.failing = clip.Text(fmt.Sprintf("%s: it ends with exit code %d, see its logs", ended.Reason, ended.ExitCode),
				maxFailing)
		case w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing": // of which the kubelet will see to
			a.failing = clip.Text(strings.TrimSuffix(w.Reason+": "+w.Message, ": "), maxFailing)
		}
	}
	return a
}

// where names the pod and its node.
func (a nodeAgent) where() string { return "pod " + a.pod + " of node " + a.node }

// nodeOf is the node that a pod of a DaemonSet is for, which it is bound to only later: the DaemonSet's controller
// names it in an affinity.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil ||
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// speaking returns the agent of each node that speaks for it. In a roll-out there are two: the one that programs the
// node, and the one that waits for it to end.
func speaking(agents []nodeAgent) []nodeAgent {
	rank := func(a nodeAgent) int {
		switch {
		case a.programmed == "":
			return 0
		case a.unready:
			return 1
		}
		return 2
	}
	best := map[string]int{} // by node
	var out []nodeAgent
	for _, a := range agents {
		i, ok := best[a.node]
		switch {
		case !ok || a.node == "":
			best[a.node] = len(out)
			out = append(out, a)
		case rank(a) > rank(out[i]):
			out[i] = a
		}
	}
	return out
}

// agentsRunning sums up whether the pods of the node agents run, each for itself; outdated of them are yet to be made.
func agentsRunning(agents []nodeAgent, outdated int) metav1.Condition {
	agents = slices.DeleteFunc(slices.Clone(agents), func(a nodeAgent) bool { return a.ending })
	var failing, starting []string
	speaks := map[string]string{}
	for _, a := range speaking(agents) {
		speaks[a.node] = a.pod
	}
	for _, a := range agents {
		switch {
		case a.failing != "":
			text := a.where() + ": " + a.failing
			if other := speaks[a.node]; other != a.pod {
				text += " (pod " + other + " goes on)"
			}
			failing = append(failing, text)
		case !a.started || a.unready:
			starting = append(starting, a.where())
		}
	}
	count := fmt.Sprintf("%d of %d node agents run", len(agents)-len(failing)-len(starting), len(agents))
	switch {
	case len(failing) > 0:
		return condition(v1alpha1.PeeringAgentsRunning, false, v1alpha1.ReasonAgentsFailing, "%s, %d failed: %s", count,
			len(failing), strings.Join(failing[:min(few, len(failing))], "; "))
	case len(starting) > 0:
		return condition(v1alpha1.PeeringAgentsRunning, false, reasonStarting, "%s, waiting for %s", count, some(starting))
	case outdated > 0 || len(agents) == 0:
		return condition(v1alpha1.PeeringAgentsRunning, false, reasonStarting, "%s, waiting for DaemonSet %s to replace %d: "+
			"its events say why it may not", count, nodeDaemonSet, outdated)
	}
	return condition(v1alpha1.PeeringAgentsRunning, true, reasonRunning, "%s", count)
}

// failedRevisions are those of which an agent took its node over and has failed.
func failedRevisions(agents []nodeAgent) []string {
	failed := map[string]bool{}
	for _, a := range agents {
		if a.revision != "" && (a.programmed == v1alpha1.ReasonProgrammingFailed || a.failing != "" && a.took ||
			a.crashing) {
			failed[a.revision] = true
		}
	}
	all := slices.Sorted(maps.Keys(failed))
	return all[:min(len(all), v1alpha1.MaxFailedRevisions)]
}

// agentConditions passes pods that come and go, and those whose agent says something else.
func agentConditions() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, also := e.ObjectNew.(*corev1.Pod)
		return !ok || !also || agentOf(before) != agentOf(after)
	}}
}

// few agents are named where something is amiss: what is said travels to Karmada.
const few = 3

// nodesProgrammed sums up whether the nodes are programmed.
func nodesProgrammed(agents []nodeAgent, desired int) metav1.Condition {
	var failed, waiting []string
	for _, a := range agents {
		switch {
		case a.programmed == v1alpha1.ReasonNodeProgrammed && !a.unready:
		case a.programmed == v1alpha1.ReasonProgrammingFailed:
			failed = append(failed, strings.TrimSuffix(fmt.Sprintf("pod %s: node %s: %s", a.pod, a.node, a.message), ": "))
		default:
			waiting = append(waiting, a.where())
		}
	}
	total := max(desired, len(agents))
	done := len(agents) - len(failed) - len(waiting)
	count := fmt.Sprintf("%d of %d nodes are programmed", done, total)
	switch {
	case len(failed) > 0:
		return condition(v1alpha1.PeeringNodesProgrammed, false, v1alpha1.ReasonProgrammingFailed,
			"%s, %d failed: %s", count, len(failed), strings.Join(failed[:min(few, len(failed))], "; "))
	case len(waiting) > 0:
		return condition(v1alpha1.PeeringNodesProgrammed, false, reasonProgramming,
			"%s, waiting for %s", count, some(waiting))
	case done < total || total == 0:
		return condition(v1alpha1.PeeringNodesProgrammed, false, reasonProgramming,
			"%s, waiting for pods of DaemonSet %s", count, nodeDaemonSet)
	}
	return condition(v1alpha1.PeeringNodesProgrammed, true, reasonProgrammed, "%s", count)
}

// networksAccepted sums up what nodes refuse to route. Nodes that refuse the same are named together.
func networksAccepted(agents []nodeAgent) metav1.Condition {
	nodes := map[string][]string{}
	for _, a := range agents {
		if a.refused != "" {
			nodes[a.refused] = append(nodes[a.refused], a.node)
		}
	}
	if len(nodes) == 0 {
		return condition(v1alpha1.PeeringNetworksAccepted, true, reasonAccepted, "no node refuses anything")
	}
	var refusals []string
	for _, what := range slices.Sorted(maps.Keys(nodes)) {
		on := nodes[what]
		slices.Sort(on)
		text := fmt.Sprintf("%s (node %s)", what, on[0])
		if len(on) > 1 {
			text = fmt.Sprintf("%s (node %s and %d more)", what, on[0], len(on)-1)
		}
		refusals = append(refusals, text)
	}
	message := strings.Join(refusals[:min(few, len(refusals))], "; ")
	if more := len(refusals) - few; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return condition(v1alpha1.PeeringNetworksAccepted, false, v1alpha1.ReasonNetworksRefused, "%s", message)
}
