// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"slices"
	"testing"
	"time"
)

// TestFaultsOfALog: what is old, of a library, or no error for a conflict is no fault.
func TestFaultsOfALog(t *testing.T) {
	const (
		cri      = `2026-11-22T04:21:24.38174617Z stderr F `
		conflict = `Operation cannot be fulfilled on peerings.sealane.io \"sealane\": ` +
			`the object has been modified; please apply your changes`
		refused = cri + `{"time":"2026-11-22T04:21:24.381Z","level":"ERROR","msg":"Reconciler error","err":"` +
			conflict + `"}`
		direct   = `{"time":"2026-11-22T04:21:24.5Z","level":"ERROR","msg":"Reconciler error","err":"` + conflict + `"}`
		unknown  = cri + `{"time":"2026-11-22T04:21:24.381Z","level":"INFO","msg":"unknown field \"status.conditions\""}`
		timeless = `W1122 warnings.go:70] unknown field "status.clusters"`
	)
	lines := []string{
		`2026-11-22T04:21:23.9Z stderr F {"time":"2026-11-22T04:21:23.9Z","level":"INFO","msg":"unknown field \"spec.old\""}`,
		`W1122 warnings.go:70] unknown field "spec.old"`,
		cri + `{"time":"2026-11-22T04:21:24.381Z","level":"INFO","msg":"the gateway changed"}`,
		refused, direct, unknown, timeless,
		`{"time":"2026-11-22T04:21:25Z","level":"ERROR","msg":"Failed to create/update work karmada-es-c1/x. Error: ` +
			conflict + `"}`,
		`{"time":"2026-11-22T04:21:25Z","level":"INFO","msg":"tried again","err":"` + conflict + `"}`,
		cri + `{"time":"2026-11-22T04:21:25Z","level":"ERROR","msg":"Failed to update lock optimistically: ` +
			conflict + `"}`,
		cri + `{"time":"2026-11-22T04:21:25Z","level":"ERROR","msg":"Reconciler error","err":"connection refused"}`,
		"",
	}
	var log string
	for _, line := range lines {
		log += line + "\n"
	}
	since := time.Date(2026, 11, 22, 4, 21, 24, 0, time.UTC)
	if got, want := faults(log, since), []string{refused, direct, unknown, timeless}; !slices.Equal(got, want) {
		t.Errorf("expected\n%q\nfound\n%q", want, got)
	}
}
