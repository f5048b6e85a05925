// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"testing"

	"github.com/sealane-io/sealane/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, nil) }
