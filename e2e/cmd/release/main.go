// SPDX-License-Identifier: Apache-2.0

// Command release builds all that a version of Sealane is published as: the plugin for each platform, the images, a
// manifest for krew, a bundle for clusters that reach no other network, release notes, and sums.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	version := flag.String("version", "", "version: v, and a semantic version")
	url := flag.String("url", "", "where the files are published, without their names; empty is the version on GitHub")
	out := flag.String("out", "dist/release", "directory of the files, relative to the source tree")
	flag.Parse()
	if err := run(ctx, *version, *url, *out); err != nil {
		fmt.Fprintf(os.Stderr, "release: failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, version, url, out string) error {
	if err := release.CheckVersion(version); err != nil {
		return err
	}
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	if err := release.CheckTree(ctx, root, version); err != nil {
		return err
	}
	of, err := release.Checkout(ctx, root, version)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(root, out)
	}
	d := release.Distribution{
		Build: release.Build{Release: of, Root: root, Arches: []string{"amd64", "arm64"},
			Cache: filepath.Join(root, "dist/images/.cache"), Out: out, Fresh: true},
		URL: cmp.Or(url, "https://github.com/sealane-io/sealane/releases/download/"+version),
		Say: func(step string) { fmt.Println(step) },
	}
	if err := d.Run(ctx); err != nil {
		return err
	}
	return list(out)
}

// list prints the files of a release, with their sizes.
func list(dir string) error {
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range found {
		info, err := f.Info()
		if err != nil {
			return err
		}
		fmt.Printf("%7.1f MB  %s\n", float64(info.Size())/1e6, filepath.Join(dir, f.Name()))
	}
	return nil
}
