// SPDX-License-Identifier: Apache-2.0

// Package exportmeta says which labels and annotations of an exported Service reach the clusters that import
// it. The broker decides it, as it trusts no agent; the exporting agent names what it cannot read in the same words.
package exportmeta

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sealane-io/sealane/internal/clip"
)

// Limits of what one export carries, of labels and of annotations each.
const (
	// MaxEntries is the number of labels, and of annotations.
	MaxEntries = 32
	// MaxBytes is the size of all keys and values together.
	MaxBytes = 4 << 10
	// MaxValue is the size of one annotation's value.
	MaxValue = 1 << 10
)

// maxNamed is how many keys, and maxShown how many bytes of a key, a message shows.
const (
	maxNamed = 3
	maxShown = 80
)

// controlling are the domains whose labels and annotations steer controllers: in an importing cluster they
// would have a tool adopt, prune or route what it does not own. Subdomains are included.
var controlling = []string{
	"argoproj.io",   // Argo CD's tracking, sync options and hooks
	"cattle.io",     // Rancher Fleet's object sets
	"fluxcd.io",     // Flux's kustomize.toolkit and helm.toolkit
	"helm.sh",       // meta.helm.sh and helm.sh
	"k14s.io",       // kapp
	"k8s.io",        // config.k8s.io/owning-inventory and the like
	"karmada.io",    // propagation, conflict resolution, bindings
	"kubernetes.io", // kubectl, service, node, endpointslice, multicluster
	"sealane.io",
	"x-k8s.io",
}

// harmless are the keys below the controlling domains that only describe. app.kubernetes.io/instance and
// managed-by are not among them: Argo CD and Helm take objects for their own by these.
var harmless = []string{
	"app.kubernetes.io/component",
	"app.kubernetes.io/name",
	"app.kubernetes.io/part-of",
	"app.kubernetes.io/version",
}

// Dropped is a label or an annotation that is not exported.
type Dropped struct {
	// Key as given, of any content and length.
	Key string
	// Why in words, a clause whose subject is the key: "is no valid label".
	Why string
}

// Labels returns the labels that are exported, nil for none, and the others sorted by key.
func Labels(all map[string]string) (map[string]string, []Dropped) {
	return filter(all, func(key, value string) string {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return "is no valid label"
		}
		return ""
	})
}

// Annotations returns the annotations that are exported, nil for none, and the others sorted by key.
func Annotations(all map[string]string) (map[string]string, []Dropped) {
	return filter(all, func(key, value string) string {
		switch {
		// As the API server has it: upper case is valid in an annotation's prefix, and in no label's.
		case len(validation.IsQualifiedName(strings.ToLower(key))) > 0:
			return "is no valid annotation"
		case len(value) > MaxValue:
			return fmt.Sprintf("has more than %d bytes", MaxValue)
		}
		return ""
	})
}

// filter keeps what may pass, the first in the order of keys where there is more than the limits allow.
func filter(all map[string]string, invalid func(key, value string) string) (map[string]string, []Dropped) {
	var kept map[string]string
	var dropped []Dropped
	size := 0
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value := all[key]
		why := invalid(key, value)
		switch {
		case why != "":
		case steers(key):
			why = "steers other controllers"
		case len(kept) == MaxEntries:
			why = fmt.Sprintf("is one of more than %d", MaxEntries)
		case size+len(key)+len(value) > MaxBytes:
			why = fmt.Sprintf("exceeds %d bytes together with those before it", MaxBytes)
		}
		if why != "" {
			dropped = append(dropped, Dropped{key, why})
			continue
		}
		if kept == nil {
			kept = make(map[string]string, min(len(all), MaxEntries))
		}
		size += len(key) + len(value)
		kept[key] = value
	}
	return kept, dropped
}

// steers says whether a key belongs to a controlling domain.
func steers(key string) bool {
	key = strings.ToLower(key)
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed || slices.Contains(harmless, key) {
		return false
	}
	return slices.ContainsFunc(controlling, func(c string) bool {
		return domain == c || strings.HasSuffix(domain, "."+c)
	})
}

// Text says what was dropped, for a condition: "label "a" steers other controllers". It is empty where nothing
// was. what is "label" or "annotation".
func Text(what string, dropped []Dropped) string {
	parts := make([]string, 0, maxNamed+1)
	for i, d := range dropped {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("and %d more %ss", len(dropped)-i, what))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %q %s", what, clip.Text(d.Key, maxShown), d.Why))
	}
	return strings.Join(parts, ", ")
}
