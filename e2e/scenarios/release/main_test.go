// SPDX-License-Identifier: Apache-2.0

// Package release has the scenarios of versions: how they come from a registry to nodes that have none, on a lab of its
// own, and how one follows another.
package release

import (
	"os"
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

func TestMain(m *testing.M) { os.Exit(suite.MainOn(m, "release")) }
