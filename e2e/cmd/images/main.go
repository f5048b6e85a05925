// SPDX-License-Identifier: Apache-2.0

// Command images builds Sealane's container images as OCI archives, without a container engine, and pushes them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	version := flag.String("version", "", "version of the images, which is their tag")
	arches := flag.String("arch", "amd64,arm64", "processors, separated by commas")
	out := flag.String("out", "dist/images", "directory of the archives, relative to the source tree")
	push := flag.String("push", "", "registry, with a path if it has one, to push the archives of the version to; "+
		"empty builds them")
	flag.Parse()
	if err := run(ctx, *version, *arches, *out, *push); err != nil {
		fmt.Fprintf(os.Stderr, "images: failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, version, arches, out, registry string) error {
	if version == "" {
		return errors.New("expected a version, such as --version=v1.2.3")
	}
	root, err := lab.SourceRoot(ctx)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(out) {
		out = filepath.Join(root, out)
	}
	if registry != "" {
		return push(ctx, out, version, registry)
	}
	of, err := release.Checkout(ctx, root, version)
	if err != nil {
		return err
	}
	archives, err := release.Build{Release: of,
		Root: root, Arches: strings.Split(arches, ","), Cache: filepath.Join(out, ".cache"), Out: out, Fresh: true}.Run(ctx)
	if err != nil {
		return err
	}
	for _, a := range archives {
		fmt.Println(a)
	}
	return nil
}

// push pushes the archives of a version.
func push(ctx context.Context, dir, version, registry string) error {
	for _, r := range release.Recipes() {
		archive := filepath.Join(dir, r.Archive(version))
		if _, err := os.Stat(archive); err != nil {
			return fmt.Errorf("build the images first, by make images VERSION=%s: %w", version, err)
		}
		ref, err := release.Push(ctx, archive, registry)
		if err != nil {
			return err
		}
		fmt.Println(ref)
	}
	return nil
}
