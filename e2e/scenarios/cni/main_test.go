// SPDX-License-Identifier: Apache-2.0

// Package cni has the scenarios of clusters with other CNI plugins, on a lab of its own.
package cni

import (
	"os"
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

func TestMain(m *testing.M) { os.Exit(suite.MainOn(m, "cni")) }
