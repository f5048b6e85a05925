// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sealane-io/sealane/e2e/debian"
)

// Kernel is an unpacked Debian kernel package.
type Kernel struct {
	// Image to boot.
	Image string
	// Root holds lib/modules/<Release>, indexed by depmod(8).
	Root, Release string
}

// DebianKernel fetches Debian's kernel for virtual machines from the package lists, whose modules are those that
// Debian's servers have. It is unpacked in dir, never installed, and there from then on.
func DebianKernel(ctx context.Context, lists debian.Lists, dir string) (Kernel, error) {
	// The metapackage stands for one such as linux-image-6.1.0-56-cloud-amd64.
	const prefix = "linux-image-"
	pkg, err := lists.Dependency(ctx, prefix+"cloud-"+runtime.GOARCH, prefix)
	if err != nil {
		return Kernel{}, err
	}
	release := strings.TrimPrefix(pkg, prefix)
	root, err := lists.Unpacked(ctx, dir, release, pkg, func(root string) error {
		if out, err := exec.CommandContext(ctx, "depmod", "--basedir", root, release).CombinedOutput(); err != nil {
			return fmt.Errorf("index the modules of %s: %w: %s", pkg, err, out)
		}
		return nil
	})
	return Kernel{Image: filepath.Join(root, "boot", "vmlinuz-"+release), Root: root, Release: release}, err
}
