// SPDX-License-Identifier: Apache-2.0

// Command push writes the images of a bundle for clusters that reach no other network into a registry:
//
//	push [--images=images] REGISTRY[/PATH]
//
// The images become REGISTRY/PATH/NAME:VERSION, which are those that install --registry=REGISTRY/PATH asks for.
// Credentials are those of docker login or podman login.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sealane-io/sealane/e2e/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	images := flag.String("images", "images", "directory of the images' archives, *.oci.tar")
	flag.Parse()
	if err := run(ctx, *images, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "push: failed: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, images string, args []string) error {
	if len(args) != 1 {
		return errors.New("expected one registry, such as registry.example.org/sealane")
	}
	archives, err := filepath.Glob(filepath.Join(images, "*.oci.tar"))
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return fmt.Errorf("expected archives of images in %s, found none; name their directory by --images", images)
	}
	for _, archive := range archives {
		ref, err := release.Push(ctx, archive, args[0])
		if err != nil {
			return err
		}
		fmt.Println(ref)
	}
	return nil
}
