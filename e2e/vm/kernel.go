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

// DebianKernel fetches Debian's kernel for virtual machines, whose modules are those that Debian's servers
// have. It is unpacked in dir, never installed, and there from then on.
func DebianKernel(ctx context.Context, dir string) (Kernel, error) {
	pkg, err := kernelPackage(ctx)
	if err != nil {
		return Kernel{}, err
	}
	release := strings.TrimPrefix(pkg, "linux-image-")
	root, err := debian.Unpacked(ctx, dir, release, pkg, func(root string) error {
		if out, err := exec.CommandContext(ctx, "depmod", "--basedir", root, release).CombinedOutput(); err != nil {
			return fmt.Errorf("index the modules of %s: %w: %s", pkg, err, out)
		}
		return nil
	})
	return Kernel{Image: filepath.Join(root, "boot", "vmlinuz-"+release), Root: root, Release: release}, err
}

// kernelPackage is the package that the metapackage stands for, such as linux-image-6.1.0-56-cloud-amd64.
func kernelPackage(ctx context.Context) (string, error) {
	meta := "linux-image-cloud-" + runtime.GOARCH
	look := func() ([]byte, error) {
		return exec.CommandContext(ctx, "apt-cache", "depends", "--important", meta).CombinedOutput()
	}
	out, err := look()
	if err != nil {
		// A new machine has no package lists.
		if out, err := exec.CommandContext(ctx, "apt-get", "update", "-q").CombinedOutput(); err != nil {
			return "", fmt.Errorf("update package lists: %w: %s", err, out)
		}
		out, err = look()
	}
	if err != nil {
		return "", fmt.Errorf("look up %s: %w: %s", meta, err, out)
	}
	for _, field := range strings.Fields(string(out)) {
		if strings.HasPrefix(field, "linux-image-") && field != meta {
			return field, nil
		}
	}
	return "", fmt.Errorf("look up %s: it depends on no linux-image package: %s", meta, out)
}
