// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"flag"
	"testing"
)

var effort = flag.String("effort", "usual", "brief leaves out the longest tests, as make test does on a slow "+
	"machine, and thorough tries all cases of tests that have many, as make soak does")

// Thorough says that tests of many cases try all of them, and not some.
func Thorough() bool { return *effort == "thorough" }

// Brief says that the longest tests are left out, or made short.
func Brief() bool { return *effort == "brief" }

// Long leaves a test out of a run that is to be brief.
func Long(t *testing.T) {
	t.Helper()
	if Brief() {
		t.Skip("this machine is so slow that make test would take too long: run make test-e2e")
	}
}
