// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"os"
	"testing"

	"github.com/sealane-io/sealane/e2e/suite"
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m)) }
