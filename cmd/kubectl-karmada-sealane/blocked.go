// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	// lookAgain is how often members that are not ready are asked what their pods wait for, askedAtOnce how many at a
	// time.
	lookAgain   = time.Second
	askedAtOnce = 16
	// maxBlocked bounds, in bytes, what is told of one cause, maxCauses how many are, and maxName the name of a pod.
	maxBlocked = 256
	maxCauses  = 4
	maxName    = 64
	// maxStarting is how many pods are looked at. They are read every second, and one second later for each so many.
	maxStarting, perLook = 500, 50
)

// blocked follows what keeps Sealane's pods from starting in members that are waited for: none of their agents may run
// to tell. Of a member that cannot be asked it says nothing.
type blocked struct {
	mu sync.Mutex
	by map[string]string
}

// of a member, "" if nothing is known to.
func (b *blocked) of(member string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.by[member]
}

// followBlocked asks the members of a ClusterSet that are not ready, until ctx ends.
func (o *options) followBlocked(ctx context.Context, karmada *api, set string) *blocked {
	b := &blocked{by: map[string]string{}}
	asked := map[string]*askedMember{}
	go func() {
		for tick := time.NewTicker(lookAgain); ctx.Err() == nil; {
			members, err := karmada.members(ctx)
			var g errgroup.Group
			g.SetLimit(askedAtOnce)
			for i := range members {
				m := &members[i]
				if err != nil || m.Spec.ClusterSet != set || memberReadiness(m).ready {
					continue
				}
				if asked[m.Name] == nil {
					asked[m.Name] = &askedMember{}
				}
				at := asked[m.Name]
				g.Go(func() error {
					text := at.ask(ctx, o, karmada, m)
					b.mu.Lock()
					defer b.mu.Unlock()
					b.by[m.Name] = text
					return nil
				})
			}
			_ = g.Wait()
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
	}()
	return b
}

// askedMember is a member that is asked again and again.
type askedMember struct {
	api  *api
	pods startingPods
}

func (a *askedMember) ask(ctx context.Context, o *options, karmada *api, m *v1alpha1.Member) string {
	ctx, cancel := context.WithTimeout(ctx, defaultMemberTimeout)
	defer cancel()
	if a.api == nil {
		c, err := o.member(ctx, karmada, m)
		if err != nil {
			return ""
		}
		a.api = c
	}
	return a.pods.blocked(ctx, a.api, v1alpha1.Namespace)
}

// startingPods are the pods of a namespace, as they are seen one time after the other.
type startingPods struct {
	// said is what was said of each image that cannot be pulled: between two tries some kubelets say only that they wait.
	said map[string]string
	// told was told last, and holds until then.
	told  string
	until time.Time
}

// blocked says what keeps pods from starting, "" if nothing does or nobody answers.
func (s *startingPods) blocked(ctx context.Context, at *api, namespace string) string {
	if time.Now().Before(s.until) {
		return s.told
	}
	var pods corev1.PodList
	if err := at.List(ctx, &pods, client.InNamespace(namespace), client.Limit(maxStarting)); err != nil {
		return ""
	}
	s.until = time.Now().Add(time.Duration(len(pods.Items)/perLook) * lookAgain)
	s.told = s.causes(pods.Items)
	return s.told
}

// causes are those of pods that do not start, each once, with the pods that wait for it.
func (s *startingPods) causes(pods []corev1.Pod) string {
	waiting, said, reason := map[string][]string{}, map[string]string{}, map[string]string{}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		name := "pod " + clip.Text(clip.Line(pod.Name), maxName)
		if pod.Spec.NodeName != "" {
			name += " on " + clip.Text(clip.Line(pod.Spec.NodeName), maxName)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				cause := "no node takes it: " + clip.Text(clip.Line(c.Message), maxBlocked)
				waiting[cause] = append(waiting[cause], name)
			}
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			var cause string
			switch w := c.State.Waiting; {
			case w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing":
				continue
			case pullFails(w.Reason):
				cause = "image " + clip.Text(clip.Line(c.Image), maxBlocked) + " cannot be pulled"
				said[cause], reason[cause] = cmp.Or(said[cause], pullError(c.Image, w)), w.Reason
			case w.Reason == "CrashLoopBackOff": // its message is another each time
				cause = "container " + clip.Text(clip.Line(c.Name), maxName) + " ends again and again, see its log"
			default:
				cause = clip.Text(clip.Line(w.Reason+": "+w.Message), maxBlocked)
			}
			waiting[cause] = append(waiting[cause], name)
		}
	}
	var causes []string
	for _, cause := range slices.Sorted(maps.Keys(waiting)) {
		text := clip.List(waiting[cause], 2) + ": " + cause
		if reason[cause] != "" {
			said[cause] = cmp.Or(said[cause], s.said[cause])
			text += ": " + clip.Text(clip.Line(cmp.Or(said[cause], reason[cause])), maxBlocked)
		}
		causes = append(causes, text)
	}
	s.said = said
	if n := len(causes); n > maxCauses {
		causes = append(causes[:maxCauses], fmt.Sprintf("and %d more causes", n-maxCauses))
	}
	return strings.Join(causes, "; ")
}

// pullFails says whether a container waits, by the kubelet's reason, for an image that it does not get.
func pullFails(reason string) bool {
	return slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
		"ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}, reason)
}

// pullError is why an image could not be pulled, without the names of the steps in which the runtime tried; "" if the
// kubelet only says that it waits before it tries again.
func pullError(image string, w *corev1.ContainerStateWaiting) string {
	text := w.Message
	if w.Reason == "ImagePullBackOff" {
		_, text, _ = strings.Cut(text, "ErrImagePull: ")
	}
	if _, said, found := strings.Cut(text, " desc = "); found {
		text = said
	}
	if i := strings.LastIndex(text, `": `); i >= 0 {
		text = text[i+len(`": `):]
	}
	return strings.TrimPrefix(text, image+": ")
}
