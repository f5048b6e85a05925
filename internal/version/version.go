// SPDX-License-Identifier: Apache-2.0

// Package version names the release that a binary was built from.
package version

// Version is set by the linker:
//
//	-ldflags "-X github.com/sealane-io/sealane/internal/version.Version=v1.2.3"
var Version = "v0.1.0-dev"
