// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Distribution is all that a version is published as. Its Out gets, besides what a Build writes there:
//
//	kubectl-karmada-sealane-VERSION-OS-ARCH.tar.gz   the plugin; .zip for Windows
//	sealane.yaml                                     the plugin's manifest for krew
//	sealane-VERSION-airgap.tar                       all of it for clusters that reach no other network
//	RELEASE_NOTES.md                                 commits since the version before
//	SHA256SUMS                                       of all others
type Distribution struct {
	Build
	// URL that the files of Out are published below.
	URL string
	// Say is called with each step.
	Say func(string)
}

// built are the paths of what was compiled.
type built struct {
	plugins, pushers map[Platform]string
	images           []string
}

// Run builds everything, and puts it in the place of what an earlier run left in Out, once it is complete.
func (d Distribution) Run(ctx context.Context) error {
	if err := replaceable(d.Out); err != nil {
		return err
	}
	out := d.Out
	d.Out += ".new"
	if err := os.RemoveAll(d.Out); err != nil {
		return fmt.Errorf("remove what an interrupted run left: %w", err)
	}
	b, err := d.compileAll(ctx)
	if err != nil {
		return err
	}
	if err := d.assemble(ctx, d.Out, b); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("remove the release before: %w", err)
	}
	return os.Rename(d.Out, out)
}

// replaceable refuses a directory of files that are none of a release.
func replaceable(dir string) error {
	found, err := os.ReadDir(dir)
	if os.IsNotExist(err) || err == nil && len(found) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, sumsFile)); err != nil {
		return fmt.Errorf("expected %s to be empty or an earlier release, found %s and no %s; name another by --out",
			dir, found[0].Name(), sumsFile)
	}
	return nil
}

// compileAll builds the images, and the programs that run on other machines.
func (d Distribution) compileAll(ctx context.Context) (b built, err error) {
	d.Say("images for linux")
	if b.images, err = d.Build.Run(ctx); err != nil {
		return b, err
	}
	b.plugins, b.pushers = map[Platform]string{}, map[Platform]string{}
	for _, p := range Platforms() {
		d.Say("plugin for " + p.String())
		if b.plugins[p], err = d.Plugin(ctx, p); err != nil {
			return b, err
		}
		if p.OS != "linux" {
			continue
		}
		if b.pushers[p], err = d.program(ctx, p, "e2e", "./cmd/push"); err != nil {
			return b, err
		}
	}
	return b, nil
}

// Plugin builds the plugin for a platform, and returns its path.
func (b Build) Plugin(ctx context.Context, p Platform) (string, error) {
	return b.program(ctx, p, ".", "./cmd/"+plugin)
}

// program builds a program of a module, which is a directory of the source tree, for a platform, and returns its path.
func (b Build) program(ctx context.Context, p Platform, module, pkg string) (string, error) {
	dir, err := b.compile(ctx, p, module, pkg)
	return filepath.Join(dir, p.program(filepath.Base(pkg))), err
}

// assemble writes the files of a release, beside the images that are in its directory already.
func (d Distribution) assemble(ctx context.Context, dir string, b built) error {
	d.Say("archives and sums")
	archives := map[Platform]string{}
	for _, p := range Platforms() {
		archive, err := d.archivePlugin(dir, p, b.plugins[p])
		if err != nil {
			return err
		}
		archives[p] = archive
	}
	manifest, err := d.krew(archives)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, krewName+".yaml"), manifest, 0o644); err != nil {
		return err
	}
	notes, err := d.notes(ctx)
	if err != nil {
		return fmt.Errorf("release notes: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "RELEASE_NOTES.md"), notes, 0o644); err != nil {
		return err
	}
	if err := d.bundle(dir, b, archives); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	return writeSums(dir)
}

// writeSums writes the list of a directory's files, by name.
func writeSums(dir string) error {
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var members []member
	for _, f := range found {
		members = append(members, member{name: f.Name(), path: filepath.Join(dir, f.Name())})
	}
	list, err := sums(members)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), list, 0o644)
}
