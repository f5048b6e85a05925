// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

// Verdict says what is wrong with an import; the zero Verdict is that it exists and can be used.
type Verdict struct{ Reason, Message string }

// maxMessage is how many bytes of an API server's words are passed on.
const maxMessage = 300

// Refusals remember the imports of which the API server refused an object, or whose name an object has that is not
// ours.
type Refusals struct {
	mu  sync.Mutex
	all map[types.NamespacedName]Verdict
	// listeners are woken by every change.
	listeners []chan event.GenericEvent
}

// NewRefusals returns an empty set.
func NewRefusals() *Refusals {
	return &Refusals{all: map[types.NamespacedName]Verdict{}}
}

// Changed returns a channel of its own for each caller, which receives an event after every change; several changes may
// share one.
func (r *Refusals) Changed() <-chan event.GenericEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan event.GenericEvent, 1)
	r.listeners = append(r.listeners, c)
	return c
}

// Of returns the Verdict on one import.
func (r *Refusals) Of(key types.NamespacedName) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[key]
}

// set remembers a Verdict, and with the zero one forgets the import. It says whether that is news.
func (r *Refusals) set(key types.NamespacedName, v Verdict) bool {
	r.mu.Lock()
	news := r.all[key] != v
	if v == (Verdict{}) {
		delete(r.all, key)
	} else {
		r.all[key] = v
	}
	listeners := r.listeners
	r.mu.Unlock()
	if !news {
		return false
	}
	for _, c := range listeners {
		select {
		case c <- event.GenericEvent{Object: &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}}}:
		default:
		}
	}
	return true
}

// taken is the error of an object that is somebody else's and stands in the way of an import.
type taken struct{ message string }

func (t *taken) Error() string { return t.message }

// derivedName is the name of a derived Service within an API server's words: it differs from import to import, while
// the rest is the same for many.
var derivedName = regexp.MustCompile(`"sl-[0-9a-f]{10}(-[0-9a-f]{8}-[0-9]+)?" `)

// refusal returns the Verdict where an error is the API server's last word, for as long as nobody changes a quota, a
// policy or an object. Other errors pass.
func refusal(err error) (Verdict, bool) {
	var t *taken
	if errors.As(err, &t) {
		return Verdict{v1alpha1.ReasonNameTaken, t.message}, true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return Verdict{}, false
	}
	switch code := status.Status().Code; {
	case code == http.StatusUnauthorized, code == http.StatusNotFound, code == http.StatusConflict,
		code == http.StatusTooManyRequests,
		code < 400, code > 500:
		return Verdict{}, false
	}
	text := clip.Text(derivedName.ReplaceAllString(status.Status().Message, ""), maxMessage)
	return Verdict{v1alpha1.ReasonImportRefused, text}, true
}

// Judge returns the Verdict on an import that is wanted, from the ServiceImport of its name, nil if there is none, and
// what was refused.
func Judge(wanted *v1alpha1.Import, namespaceExists bool, have *mcs.ServiceImport, refused Verdict,
	limited bool) Verdict {
	switch {
	case !namespaceExists:
		return Verdict{v1alpha1.ReasonNamespaceMissing, fmt.Sprintf("there is no namespace %s; create it to use the services",
			wanted.Namespace)}
	case wanted.Withheld:
		return Verdict{v1alpha1.ReasonImportWithheld, "the namespace is there, and the endpoints are on their way"}
	case have != nil && v1alpha1.Propagated(have):
		return Verdict{v1alpha1.ReasonNameTaken, "Karmada propagates a ServiceImport of that name; delete it on the " +
			"Karmada API"}
	case have != nil && !v1alpha1.OwnsServiceImport(have):
		return Verdict{v1alpha1.ReasonNameTaken, "there is a ServiceImport of that name that Sealane did not make; delete " +
			"or rename it"}
	case refused != Verdict{}:
		return refused
	case have == nil:
		return Verdict{v1alpha1.ReasonImportPending, "it is not made yet"}
	case limited:
		return Verdict{}
	}
	ready := meta.FindStatusCondition(have.Status.Conditions, string(mcs.ServiceImportConditionReady))
	switch {
	case ready == nil:
		return Verdict{v1alpha1.ReasonImportPending, "it is not made yet"}
	case ready.Status != metav1.ConditionTrue:
		return Verdict{ready.Reason, ready.Message}
	}
	return Verdict{}
}

// BeingMade says that nothing is wrong with an import but that it is not there yet.
func (v Verdict) BeingMade() bool {
	return v.Reason == v1alpha1.ReasonImportPending || v.Reason == v1alpha1.ReasonImportWithheld
}

// Problems groups Verdicts by namespace, reason and message, sorted by these. Fine imports are not in it.
func Problems(all map[types.NamespacedName]Verdict) []v1alpha1.ImportProblem {
	type group struct {
		namespace string
		Verdict
	}
	names := map[group][]string{}
	for key, v := range all {
		if v != (Verdict{}) {
			g := group{key.Namespace, v}
			names[g] = append(names[g], key.Name)
		}
	}
	var out []v1alpha1.ImportProblem
	for g, list := range names {
		slices.Sort(list)
		out = append(out, v1alpha1.ImportProblem{Namespace: g.namespace, Names: list, Reason: g.Reason, Message: g.Message})
	}
	slices.SortFunc(out, compareProblems)
	return out
}

func compareProblems(a, b v1alpha1.ImportProblem) int {
	return slices.Compare([]string{a.Namespace, a.Reason, a.Message}, []string{b.Namespace, b.Reason, b.Message})
}
