// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package credential

import "github.com/google/renameio/v2"

// replace writes a file anew, with mode 0600 where there was none: a reader finds the old text or the new one.
func replace(path string, text []byte) error { return renameio.WriteFile(path, text, 0o600) }
