// SPDX-License-Identifier: Apache-2.0

// Package release makes Sealane's container images, without a container engine: the same ones for a release and for the
// lab. Equal sources and packages make equal images.
package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Recipe says what an image consists of.
type Recipe struct {
	// Name of the image, the last element of its repository.
	Name string
	// Package is the directory of the program, relative to its module: ./cmd/sealane-x becomes /sealane-x and the entry
	// point.
	Package string
	// Description for people.
	Description string
	// User that the program runs as; empty is root.
	User string
	// Debian names packages that the image has the files of, with those that they depend on, and Links what a package
	// would have linked when it is installed: path → target.
	Debian []string
	Links  map[string]string
}

const nobody = "65532:65532"

// Recipes of all images.
func Recipes() []Recipe {
	return []Recipe{
		{Name: "controller", Package: "./cmd/sealane-controller", User: nobody,
			Description: "The broker of Sealane, on the cluster that hosts Karmada."},
		{Name: "agent", Package: "./cmd/sealane-agent", Debian: []string{"nftables", "iptables"}, Links: alternatives(),
			Description: "Sealane's agents of members: of the cluster, and of each node."},
		{Name: "dns", Package: "./cmd/sealane-dns", User: nobody,
			Description: "The DNS server of a member, for the clusterset's names."},
		{Name: "ipsec", Package: "./cmd/sealane-ipsec", Debian: []string{"charon-systemd", "libstrongswan-standard-plugins",
			"libcharon-extra-plugins"}, Description: "StrongSwan's daemon, beside the agents of nodes, for cables by IPsec."},
	}
}

// alternatives are those of the package iptables, which it links when it is installed: the programs without a flavour
// are those of nftables.
func alternatives() map[string]string {
	out := map[string]string{}
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			out["usr/sbin/"+program+suffix] = program + "-nft" + suffix
		}
	}
	return out
}

// Release is what all images of a version have in common.
type Release struct {
	// Version such as v1.2.3, and Revision, the commit that it was made of; empty where nobody asks.
	Version, Revision string
	// Created is the time of that commit, which every file and image says it is of.
	Created time.Time
}

// Content of an image beside its program, for one processor.
type Content struct {
	layers   []v1.Layer
	Packages []DebianPackage
}

// Content fetches what a recipe takes from Debian.
func (r Recipe) Content(ctx context.Context, d Debian) (Content, error) {
	if len(r.Debian) == 0 {
		return Content{}, nil
	}
	archives, err := d.Fetch(ctx, r.Debian...)
	if err != nil {
		return Content{}, fmt.Errorf("packages of image %s: %w", r.Name, err)
	}
	f, out := files{}, Content{}
	for _, archive := range archives {
		if err := f.unpack(ctx, archive); err != nil {
			return Content{}, err
		}
		p, err := describe(ctx, archive)
		if err != nil {
			return Content{}, err
		}
		out.Packages = append(out.Packages, p)
	}
	for path, target := range r.Links {
		f[path] = file{link: target}
	}
	layer, err := f.layer(false)
	if err != nil {
		return Content{}, fmt.Errorf("packages of image %s: %w", r.Name, err)
	}
	out.layers = []v1.Layer{layer}
	return out, nil
}

// Assemble makes the image for a processor of a program that is built.
func (r Recipe) Assemble(of Release, arch, program string, content Content) (v1.Image, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", r.Name, err)
	}
	name := filepath.Base(r.Package)
	layer, err := files{name: {mode: 0o755, content: binary}}.layer(true)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", r.Name, err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.AppendLayers(img, append(content.layers, layer)...)
	if err != nil {
		return nil, fmt.Errorf("image %s: append layers: %w", r.Name, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image %s: read its config: %w", r.Name, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: of.Created.UTC()}
	for i := range config.History {
		config.History[i].Created = config.Created // of whom nothing is said it is the year 1
	}
	config.Config.Entrypoint = []string{"/" + name}
	config.Config.User = r.User
	config.Config.Env = []string{"PATH=/:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	config.Config.Labels = r.annotations(of)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, fmt.Errorf("image %s: set its config: %w", r.Name, err)
	}
	return img, nil
}

// annotations are those of the OCI image specification.
func (r Recipe) annotations(of Release) map[string]string {
	const prefix = "org.opencontainers.image."
	out := map[string]string{
		prefix + "title": "sealane-" + r.Name, prefix + "description": r.Description,
		prefix + "source": "https://github.com/sealane-io/sealane", prefix + "licenses": "Apache-2.0",
	}
	if of.Version != "" {
		out[prefix+"version"] = of.Version
	}
	if of.Revision != "" {
		out[prefix+"revision"] = of.Revision
	}
	return out
}
