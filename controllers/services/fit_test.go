// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestSizesOfConditions are those of their JSON, whatever text is in them.
func TestSizesOfConditions(t *testing.T) {
	texts := []string{"", "Exported; not usable in c3", "a \"quoted\" \\ one", "<b>&amp;</b>", "größer", "\u2028\u2029",
		"\xff\xfe", "tab\t, line\n, bell\a, delete\x7f", "世界"}
	for c := range rune(0x180) {
		texts = append(texts, string(c), "x"+string(c)+"y")
	}
	for _, text := range texts {
		for _, c := range []v1alpha1.ExportCondition{{Message: text},
			{Namespace: text, Name: text, Type: text, Reason: text}} {
			if got, want := conditionSize(&c), sizeOf(c); got != want {
				t.Errorf("%q: %d bytes, want %d", text, got, want)
			}
		}
	}
}
