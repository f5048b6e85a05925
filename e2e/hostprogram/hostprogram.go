// SPDX-License-Identifier: Apache-2.0

// Package hostprogram finds what a program of this machine needs to run elsewhere: in a container image or
// in a virtual machine.
package hostprogram

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Files are what programs consist of.
type Files struct {
	// Regular files, by their path there: the path here.
	Regular map[string]string
	// Links are symbolic, by their path there: their target.
	Links map[string]string
}

// New returns no files.
func New() Files {
	return Files{Regular: map[string]string{}, Links: map[string]string{}}
}

// Add adds a program that is in the PATH, the libraries that ldd(1) names, and, for iptables and
// strongSwan, extensions, all at the paths they have here. The error is exec.ErrNotFound if there is no such program.
func (f Files) Add(ctx context.Context, program string) error {
	path, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("resolve %s: %w", path, err)
	}
	f.Regular[real] = real
	if real != path {
		f.Links[path] = real
	}
	if err := f.addLibraries(ctx, real); err != nil {
		return err
	}
	if filepath.Base(real) == "charon-systemd" {
		return f.addPlugins(ctx)
	}
	if !strings.Contains(real, "tables") {
		return nil
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return fmt.Errorf("list iptables extensions: %w", err)
	}
	for _, e := range extensions {
		f.Regular[e] = e
	}
	return nil
}

// addPlugins of strongSwan, which loads them by itself.
func (f Files) addPlugins(ctx context.Context) error {
	plugins, err := filepath.Glob("/usr/lib/ipsec/plugins/*.so")
	if err != nil {
		return fmt.Errorf("list plugins of strongSwan: %w", err)
	}
	// By which threads are ended, and which the C library looks for by itself, too.
	unwind, err := filepath.Glob("/lib/*/libgcc_s.so.1")
	if err != nil {
		return fmt.Errorf("find libgcc: %w", err)
	}
	for _, u := range unwind {
		f.Regular[u] = u
	}
	for _, p := range plugins {
		f.Regular[p] = p
		if err := f.addLibraries(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// addLibraries of a program; a static one has none.
func (f Files) addLibraries(ctx context.Context, program string) error {
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && strings.Contains(string(out), "not a dynamic executable") {
			return nil
		}
		return fmt.Errorf("libraries of %s: %w: %s", program, err, out)
	}
	for _, field := range strings.Fields(string(out)) {
		if filepath.IsAbs(field) {
			f.Regular[field] = field
		}
	}
	return nil
}
