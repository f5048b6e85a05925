// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"flag"
	"testing"
	"time"
)

var effort = flag.String("effort", "usual", "brief leaves out the longest tests, as make test does on a slow "+
	"machine, and thorough tries all cases of tests that have many, as make soak does")

var before = flag.Int64("before", 0, "leave a package out that begins later than this, in seconds since 1970, and of "+
	"which -run names no tests, so that make test ends in time on a slow machine")

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

// late says that a package which begins now is left out. A test that failed and is tried again is named, and runs.
func late(now time.Time) bool { return *before != 0 && now.Unix() > *before }
