// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/internal/clip"
)

// What somebody puts back is written again so often within the time, and then left alone until the first of these is
// older than that. A controller that answers each write at once is not raced with. One that looks every few minutes, a
// person, and a manifest that is applied again cost names for a moment; to leave their work would cost them for good.
const (
	maxPutBack    = 20
	putBackWindow = 10 * time.Minute
)

// putBack remembers what was written, and when it was found to be undone.
type putBack struct {
	// wrote is the last write by the object's name: its UID and what was forwarded.
	wrote map[string]written
	times map[string][]time.Time
	// counted are the names of objects whose last write was found to be undone before: one that is tried again, as after a
	// conflict, was put back once.
	counted map[string]bool
}

type written struct {
	uid     types.UID
	forward string
}

func newPutBack() *putBack {
	return &putBack{wrote: map[string]written{}, times: map[string][]time.Time{}, counted: map[string]bool{}}
}

func nameOf(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + client.ObjectKeyFromObject(o).String()
}

// undone says whether an object that is not as it should be was, when it was last written.
func (p *putBack) undone(o client.Object, forward string) bool {
	return p.wrote[nameOf(o)] == written{o.GetUID(), forward}
}

// found notes that an object is not as it should be, and returns since when it was put back as often as is borne; zero
// where it may be written.
func (p *putBack) found(o client.Object, forward string, now time.Time) time.Time {
	name := nameOf(o)
	recent := slices.DeleteFunc(p.times[name], func(t time.Time) bool { return now.Sub(t) > putBackWindow })
	if p.undone(o, forward) && !p.counted[name] {
		recent = append(recent, now)
		p.counted[name] = true
	}
	p.times[name] = recent
	if len(recent) < maxPutBack {
		return time.Time{}
	}
	return recent[0]
}

// note that an object was written.
func (p *putBack) note(o client.Object, forward string) {
	p.wrote[nameOf(o)] = written{o.GetUID(), forward}
	delete(p.counted, nameOf(o))
}

// owners are the annotations and labels by which tools mark what they keep, and the tools.
var owners = []struct{ key, value, tool string }{
	{"argocd.argoproj.io/tracking-id", "", "Argo CD"},
	{"kustomize.toolkit.fluxcd.io/name", "", "Flux, by the Kustomization"},
	{"helm.toolkit.fluxcd.io/name", "", "Flux, by the HelmRelease"},
	{"meta.helm.sh/release-name", "", "Helm, by the release"},
	{"objectset.rio.cattle.io/owner-name", "", "k3s or RKE2, by the manifest"},
	{"addonmanager.kubernetes.io/mode", "Reconcile", "the cluster's addon manager, in the mode"},
	{"eks.amazonaws.com/component", "", "an EKS addon, by the component"},
}

// keeper of an object, in words: who has marked it, and who wrote it last.
func keeper(o client.Object, own string) string {
	text := "somebody"
	for _, m := range owners {
		value, ok := o.GetAnnotations()[m.key]
		if !ok {
			value, ok = o.GetLabels()[m.key]
		}
		if ok && (m.value == "" || m.value == value) {
			text = m.tool + " " + clip.Quote(value)
			break
		}
	}
	var last *metav1.ManagedFieldsEntry
	fields := o.GetManagedFields()
	for i := range fields {
		f := &fields[i]
		if f.Manager != own && f.Time != nil && (last == nil || last.Time.Before(f.Time)) {
			last = f
		}
	}
	if last != nil {
		text += ", written last by " + clip.Quote(last.Manager)
	}
	return text
}
