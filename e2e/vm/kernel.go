// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
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
	root := filepath.Join(dir, release)
	k := Kernel{Image: filepath.Join(root, "boot", "vmlinuz-"+release), Root: root, Release: release}
	if _, err := os.Stat(root); err == nil {
		return k, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Kernel{}, fmt.Errorf("make the kernel's directory: %w", err)
	}
	next, err := os.MkdirTemp(dir, ".next-")
	if err != nil {
		return Kernel{}, fmt.Errorf("make the kernel's directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(next) }()
	if err := unpack(ctx, pkg, release, next); err != nil {
		return Kernel{}, err
	}
	// Another run may have been first.
	if err := os.Rename(filepath.Join(next, "root"), root); err != nil && !errors.Is(err, os.ErrExist) {
		return Kernel{}, fmt.Errorf("keep the kernel: %w", err)
	}
	return k, nil
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

// unpack a kernel package into next/root.
func unpack(ctx context.Context, pkg, release, next string) error {
	root := filepath.Join(next, "root")
	for _, argv := range [][]string{
		{"apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", pkg},
		{"sh", "-c", "dpkg-deb --extract ./*.deb root"},
		{"depmod", "--basedir", root, release},
	} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = next
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return nil
}
