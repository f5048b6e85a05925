// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	maxMessage = 1024 // bytes of a condition's message
	maxNamed   = 4    // clusters named for one field of a conflict
)

// ReasonServiceModeConflict says that the exports of one service ask for different modes.
const ReasonServiceModeConflict = "ServiceModeConflict"

// field is something in which the exports of one service may differ.
type field struct {
	reason mcs.ServiceExportConditionReason
	name   string
	// text is equal for equal values; "" is not compared.
	text func(e *v1alpha1.Export) string
	// hidden values are too long to show.
	hidden bool
	// outcome says what is imported, OLDEST stands for its cluster.
	outcome string
}

// fields returns them in the order in which their reasons are joined.
func fields(rules *rules) []field {
	const oldest = "the oldest export, of OLDEST, wins"
	setting := func(text func(*v1alpha1.ServiceSettings) string) func(*v1alpha1.Export) string {
		return func(e *v1alpha1.Export) string { return text(&e.Settings) }
	}
	return []field{
		{mcs.ServiceExportReasonPortConflict, "ports", setting(portsText), false, "all are imported, and where they clash " +
			"those of the oldest export, of OLDEST"},
		{mcs.ServiceExportReasonTypeConflict, "type", func(e *v1alpha1.Export) string { return string(e.Settings.Type) },
			false, oldest},
		{mcs.ServiceExportReasonSessionAffinityConflict, "sessionAffinity",
			func(e *v1alpha1.Export) string { return string(e.Settings.SessionAffinity) }, false, oldest},
		{mcs.ServiceExportReasonSessionAffinityConfigConflict, "sessionAffinityConfig", setting(affinityText), false, oldest},
		{mcs.ServiceExportReasonLabelsConflict, "exportedLabels",
			func(e *v1alpha1.Export) string { return mapText(e.Settings.Labels) }, true, oldest},
		{mcs.ServiceExportReasonAnnotationsConflict, "exportedAnnotations",
			func(e *v1alpha1.Export) string { return mapText(e.Settings.Annotations) }, true, oldest},
		{mcs.ServiceExportReasonInternalTrafficPolicyConflict, "internalTrafficPolicy", setting(policyText), false, oldest},
		{mcs.ServiceExportReasonTrafficDistributionConflict, "trafficDistribution", setting(distributionText), false, oldest},
		{mcs.ServiceExportReasonIPFamilyConflict, "ipFamilies", setting(familiesText), false, "all are imported"},
		{ReasonServiceModeConflict, "service mode", rules.modeText, false, oldest},
	}
}

// modeText is empty for a headless service, which has no mode.
func (r *rules) modeText(e *v1alpha1.Export) string {
	if e.Settings.Type == v1alpha1.Headless {
		return ""
	}
	return string(r.mode(e))
}

func portText(p v1alpha1.ServicePort) string {
	text := fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol)
	if p.Name == "" {
		text = text[1:]
	}
	if p.AppProtocol != nil {
		text += "=" + *p.AppProtocol
	}
	return text
}

func portsText(s *v1alpha1.ServiceSettings) string {
	all := make([]string, 0, len(s.Ports))
	for _, p := range s.Ports {
		all = append(all, portText(p))
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ",")
}

// affinityText is empty unless there is an affinity to configure.
func affinityText(s *v1alpha1.ServiceSettings) string {
	if s.SessionAffinity != corev1.ServiceAffinityClientIP {
		return ""
	}
	return fmt.Sprintf("%ds", affinityTimeout(s.SessionAffinityConfig))
}

func policyText(s *v1alpha1.ServiceSettings) string {
	if s.InternalTrafficPolicy == nil {
		return string(corev1.ServiceInternalTrafficPolicyCluster)
	}
	return string(*s.InternalTrafficPolicy)
}

func distributionText(s *v1alpha1.ServiceSettings) string {
	if s.TrafficDistribution == nil || *s.TrafficDistribution == "" {
		return "none"
	}
	return *s.TrafficDistribution
}

func familiesText(s *v1alpha1.ServiceSettings) string {
	all := make([]string, 0, len(s.IPFamilies))
	for _, f := range s.IPFamilies {
		all = append(all, string(f))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func mapText(m map[string]string) string {
	if len(m) == 0 {
		return "none"
	}
	// A map of strings always encodes, its keys sorted.
	text, _ := json.Marshal(m)
	return string(text)
}

// conflict compares the exports of one service, the oldest first, and returns the condition that all of
// them get.
func conflict(exports []accepted, rules *rules, karmada KarmadaServices) v1alpha1.ExportCondition {
	namespace, name := exports[0].export.Namespace, exports[0].export.Name
	out := metav1.Condition{
		Status: metav1.ConditionFalse,
		Reason: string(mcs.ServiceExportReasonNoConflicts), Message: "no export conflicts with this one",
	}
	var reasons, messages []string
	for _, f := range fields(rules) {
		if m := f.compare(exports); m != "" {
			reasons = append(reasons, string(f.reason))
			messages = append(messages, m)
		}
	}
	if len(reasons) > 0 {
		out.Status = metav1.ConditionTrue
		out.Reason = strings.Join(reasons, ",")
		out.Message = clip.Text(strings.Join(messages, ". "), maxMessage)
	}
	out = karmada.Conflict(out, namespace, name)
	return v1alpha1.ExportCondition{
		Namespace: namespace, Name: name, Type: string(mcs.ServiceExportConditionConflict),
		Status: out.Status, Reason: out.Reason, Message: out.Message,
	}
}

// compare returns what to say when exports differ from the oldest in a field, or nothing.
func (f *field) compare(exports []accepted) string {
	oldest := f.text(&exports[0].export)
	if oldest == "" {
		return ""
	}
	var others []string
	more := 0
	for i := range exports[1:] {
		e := &exports[i+1]
		text := f.text(&e.export)
		if text == "" || text == oldest {
			continue
		}
		if len(others) == maxNamed {
			more++
			continue
		}
		others = append(others, e.cluster+f.shown(text))
	}
	if len(others) == 0 {
		return ""
	}
	list := strings.Join(others, ", ")
	if more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	verb := "differs"
	if len(others) > 1 {
		verb = "differ"
	}
	return fmt.Sprintf("%s: %s %s from %s%s; %s", f.name, list, verb, exports[0].cluster, f.shown(oldest),
		strings.ReplaceAll(f.outcome, "OLDEST", exports[0].cluster))
}

func (f *field) shown(text string) string {
	if f.hidden {
		return ""
	}
	return " (" + clip.Text(text, maxShown) + ")"
}
