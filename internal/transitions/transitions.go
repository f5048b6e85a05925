// SPDX-License-Identifier: Apache-2.0

// Package transitions tells people of conditions that change, by Events on the object that has them: kubectl describe
// shows what happened, where conditions show what is.
package transitions

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/internal/clip"
)

// MaxMessage is how many bytes an Event's message can have by the API conventions.
const MaxMessage = 1024

// pending are the reasons of what nobody has decided yet. To begin so is no news, and nothing is wrong.
var pending = []string{string(mcsv1beta1.ServiceExportReasonPending)}

// Tell makes an Event for each condition in after whose status or reason is another than before: a warning where
// something is wrong, and none for what is well from the start.
func Tell(events record.EventRecorder, about client.Object, before, after []metav1.Condition) {
	for i := range after {
		is := &after[i]
		was := meta.FindStatusCondition(before, is.Type)
		waits := slices.Contains(pending, is.Reason)
		switch {
		case was != nil && was.Status == is.Status && was.Reason == is.Reason:
		case was == nil && (well(is) || waits):
		case well(is) || waits:
			Say(events, about, corev1.EventTypeNormal, is.Reason, is.Message)
		default:
			Say(events, about, corev1.EventTypeWarning, is.Reason, is.Message)
		}
	}
}

// Say makes an Event of a message that others may have had a part in.
func Say(events record.EventRecorder, about client.Object, level, reason, message string) {
	events.Event(about, level, reason, clip.Text(clip.Line(message), MaxMessage))
}

// well says whether a condition is as it should be. A conflict is what should not be; all others should.
func well(c *metav1.Condition) bool {
	good := metav1.ConditionTrue
	if c.Type == string(mcsv1beta1.ServiceExportConditionConflict) {
		good = metav1.ConditionFalse
	}
	return c.Status == good
}
