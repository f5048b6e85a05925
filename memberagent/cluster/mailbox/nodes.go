// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// Names by which the node agents are found, the annotation on each of their pods, and its values. What
// follows stateError is what went wrong.
const (
	nodeDaemonSet       = "sealane-node"
	annotationNodeState = "sealane.io/node-state"
	stateProgrammed     = "programmed"
	stateCleaned        = "cleaned"
	stateError          = "error"
)

// Reasons of v1alpha1.PeeringNodesProgrammed.
const (
	reasonProgrammed  = "Programmed"
	reasonProgramming = "Programming"
)

// nodeAgent is one pod of the DaemonSet, and what it says of its node: nothing before it has seen to it.
type nodeAgent struct {
	pod, state string
}

// nodeAgents lists the pods of the DaemonSet by name, and how many there should be: one for each node that
// the DaemonSet is for.
func nodeAgents(ctx context.Context, cached, live client.Reader) (agents []nodeAgent, desired int, err error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := cached.List(ctx, pods, client.InNamespace(v1alpha1.Namespace)); err != nil {
		return nil, 0, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" && o.Name == nodeDaemonSet }) {
			agents = append(agents, nodeAgent{p.Name, p.Annotations[annotationNodeState]})
		}
	}
	slices.SortFunc(agents, func(a, b nodeAgent) int { return strings.Compare(a.pod, b.pod) })
	set := &appsv1.DaemonSet{}
	err = live.Get(ctx, types.NamespacedName{Namespace: v1alpha1.Namespace, Name: nodeDaemonSet}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, 0, fmt.Errorf("get DaemonSet %s: %w", nodeDaemonSet, err)
	}
	return agents, int(set.Status.DesiredNumberScheduled), nil
}

// nodesProgrammed sums up what the node agents say. It names a few of them where something is amiss: what is
// said travels to Karmada.
func nodesProgrammed(agents []nodeAgent, desired int) metav1.Condition {
	const few = 3
	var failed, waiting []string
	for _, a := range agents {
		switch what, why, _ := strings.Cut(a.state, ": "); what {
		case stateProgrammed:
		case stateError:
			failed = append(failed, strings.TrimSuffix("pod "+a.pod+": "+why, ": "))
		default:
			waiting = append(waiting, "pod "+a.pod)
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
		return condition(v1alpha1.PeeringNodesProgrammed, false, reasonProgramming, "%s, waiting for %s", count, some(waiting))
	case done < total || total == 0:
		return condition(v1alpha1.PeeringNodesProgrammed, false, reasonProgramming, "%s, waiting for pods of DaemonSet %s", count, nodeDaemonSet)
	}
	return condition(v1alpha1.PeeringNodesProgrammed, true, reasonProgrammed, "%s", count)
}
