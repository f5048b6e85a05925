// SPDX-License-Identifier: Apache-2.0

// Package debian fetches packages of Debian's for what the tests run, and installs none.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Unpacked returns the directory dir/name, in which a package of the lists is unpacked.
// It is fetched if that is not there yet;
// finish, which may be nil, is called with its root before others see it.
func (l Lists) Unpacked(
	ctx context.Context, dir, name, pkg string, finish func(root string) error,
) (string, error) {
	root := filepath.Join(dir, name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of packages: %w", err)
	}
	next, err := os.MkdirTemp(dir, ".next-")
	if err != nil {
		return "", fmt.Errorf("make the directory of %s: %w", pkg, err)
	}
	defer func() { _ = os.RemoveAll(next) }()
	if err := l.fetch(ctx, next, pkg); err != nil {
		return "", err
	}
	unpacked := filepath.Join(next, "root")
	extract := exec.CommandContext(ctx, "sh", "-c", "dpkg-deb --extract ./*.deb root")
	extract.Dir = next
	if out, err := extract.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", pkg, err, out)
	}
	if finish != nil {
		if err := finish(unpacked); err != nil {
			return "", err
		}
	}
	// Another run may have been first.
	if err := os.Rename(unpacked, root); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("keep %s: %w", pkg, err)
	}
	return root, nil
}

// fetch a package into a directory.
func (l Lists) fetch(ctx context.Context, dir, pkg string) error {
	download := func() error {
		cmd := l.command(ctx, "apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", pkg)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("download %s: %w: %s", pkg, err, out)
		}
		return nil
	}
	if download() == nil {
		return nil
	}
	// The package lists may be missing or stale.
	if err := l.update(ctx); err != nil {
		return err
	}
	return download()
}
