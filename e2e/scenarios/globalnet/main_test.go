// SPDX-License-Identifier: Apache-2.0

// Package globalnet has the scenarios of clusters whose networks overlap, on a lab of its own.
package globalnet

import (
	"os"
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

func TestMain(m *testing.M) { os.Exit(suite.MainOn(m, "globalnet")) }
