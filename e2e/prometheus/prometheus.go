// SPDX-License-Identifier: Apache-2.0

// Package prometheus runs Debian's Prometheus on what Sealane's documents tell it.
package prometheus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sealane-io/sealane/e2e/debian"
)

// Program returns the path of prometheus or promtool, of a package that is unpacked below the user's cache directory
// and not installed.
func Program(ctx context.Context, name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the directory of caches: %w", err)
	}
	root, err := debian.Lists{}.Unpacked(ctx, filepath.Join(cache, "sealane", "debian"), "prometheus", "prometheus", nil)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "usr", "bin", name), nil
}
