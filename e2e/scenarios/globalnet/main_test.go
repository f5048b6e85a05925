// SPDX-License-Identifier: Apache-2.0

// Package globalnet has the scenarios of clusters whose networks overlap, on a lab of its own.
package globalnet

import (
	"fmt"
	"os"
	"testing"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
)

func TestMain(m *testing.M) {
	data, err := os.ReadFile("../../topologies/globalnet.yaml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	topology, err := lab.ParseTopology(data)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(suite.MainOn(m, "globalnet", topology))
}
