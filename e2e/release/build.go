// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Build says what to build and where to.
type Build struct {
	Release
	// Root of the source tree.
	Root string
	// Arches are the processors: amd64, arm64.
	Arches []string
	// Cache keeps programs and packages from one build to the next.
	Cache string
	// Out gets an archive of each image, sealane-NAME-VERSION.oci.tar, and a list of what is in it for each processor,
	// sealane-NAME-VERSION-ARCH.spdx.json.
	Out string
	// Fresh asks for the packages of today.
	Fresh bool
}

// Run builds all images, and returns the paths of their archives.
func (b Build) Run(ctx context.Context) ([]string, error) {
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return nil, fmt.Errorf("create %s: %w", b.Out, err)
	}
	programs := map[string]string{}
	var packages []string
	for _, r := range Recipes() {
		packages = append(packages, r.Package)
	}
	for _, arch := range b.Arches {
		dir, err := b.compile(ctx, Platform{OS: "linux", Arch: arch}, ".", packages...)
		if err != nil {
			return nil, err
		}
		programs[arch] = dir
	}
	var out []string
	for _, r := range Recipes() {
		archive, err := b.image(ctx, r, programs)
		if err != nil {
			return nil, err
		}
		out = append(out, archive)
	}
	return out, nil
}

// compile builds programs of a module, which is a directory of the source tree, for a platform, and returns the
// directory that they are in.
func (b Build) compile(ctx context.Context, p Platform, module string, packages ...string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(b.Cache, "programs", p.OS+"-"+p.Arch))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create the programs' directory: %w", err)
	}
	args := append([]string{"-C", filepath.Join(b.Root, module), "build", "-trimpath", "-buildvcs=false", "-ldflags",
		"-s -w -X github.com/sealane-io/sealane/internal/version.Version=" + b.Version, "-o", dir + "/"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s for %s: %w: %s", strings.Join(packages, ", "), p, err, bytes.TrimSpace(out))
	}
	return dir, nil
}

// image writes the archive of an image for all processors, and its lists.
func (b Build) image(ctx context.Context, r Recipe, programs map[string]string) (string, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	archive := filepath.Join(b.Out, r.Archive(b.Version))
	for _, arch := range b.Arches {
		content, err := r.Content(ctx, Debian{Dir: filepath.Join(b.Cache, "debian"), Arch: arch, Fresh: b.Fresh})
		if err != nil {
			return "", err
		}
		program := filepath.Join(programs[arch], filepath.Base(r.Package))
		img, err := r.Assemble(b.Release, arch, program, content)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		list := strings.TrimSuffix(archive, suffix) + "-" + arch + ".spdx.json"
		if err := b.writeSBOM(list, r, arch, program, content.Packages); err != nil {
			return "", err
		}
	}
	annotated, ok := mutate.Annotations(index, r.annotations(b.Release)).(v1.ImageIndex)
	if !ok {
		return "", fmt.Errorf("image %s: its annotations are not those of an index", r.Name)
	}
	return archive, writeArchive(archive, annotated, r.Name, b.Version)
}

// suffix of archives.
const suffix = ".oci.tar"

// Archive is the name of the file of an image.
func (r Recipe) Archive(version string) string { return "sealane-" + r.Name + "-" + version + suffix }

// writeArchive writes an index as an OCI image layout in a tar archive, as image tools import it by its name.
func writeArchive(path string, index v1.ImageIndex, image, version string) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".layout-")
	if err != nil {
		return fmt.Errorf("create a layout: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	names := map[string]string{"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name": "localhost/sealane/" + image + ":" + version}
	if err := l.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return fmt.Errorf("write layout: %w", err)
	}
	var paths []string
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, p)
		}
		return err
	}); err != nil {
		return fmt.Errorf("list layout: %w", err)
	}
	slices.Sort(paths)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range paths {
		content, err := os.ReadFile(p)
		if err != nil {
			return fmt.Errorf("read layout: %w", err)
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(p, dir+"/"), Mode: 0o644,
			Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("archive layout: %w", err)
		}
		if _, err := w.Write(content); err != nil {
			return fmt.Errorf("archive layout: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("archive layout: %w", err)
	}
	return os.WriteFile(path, buf.Bytes(), 0o644)
}

// Push writes the image of an archive to REGISTRY/NAME:VERSION, with the credentials that docker login keeps, and
// returns the reference by its digest. Only a registry on this machine is spoken to in clear.
func Push(ctx context.Context, archive, registry string) (string, error) {
	dir, err := os.MkdirTemp("", "sealane-push-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := extract(archive, dir); err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("read %s: expected one image, found %d: %w", archive, len(manifest.Manifests), err)
	}
	of := manifest.Manifests[0]
	index, err := outer.ImageIndex(of.Digest)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	repository, tag, ok := strings.Cut(strings.TrimPrefix(of.Annotations["io.containerd.image.name"],
		"localhost/sealane/"), ":")
	if !ok {
		return "", fmt.Errorf("read %s: expected an image of Sealane, found %q", archive, of.Annotations)
	}
	ref, err := name.NewTag(strings.TrimSuffix(registry, "/") + "/" + repository + ":" + tag)
	if err != nil {
		return "", fmt.Errorf("registry %q: %w", registry, err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithTransport(
		clearAtHome{remote.DefaultTransport}), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("push %s: %w", ref, err)
	}
	return ref.Context().Digest(of.Digest.String()).String(), nil
}

// clearAtHome speaks in clear to this machine only. The client of registries would, after https has failed, also to any
// private address and to names that end with .local, and whoever is on the way could make https fail.
type clearAtHome struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c clearAtHome) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	ip, err := netip.ParseAddr(host)
	if here := host == "localhost" || err == nil && ip.IsLoopback(); r.URL.Scheme != "https" && !here {
		return nil, fmt.Errorf("expected a registry that speaks https, found none at %s; only one on this machine is "+
			"spoken to in clear", r.URL.Host)
	}
	return c.RoundTripper.RoundTrip(r)
}

// extract writes the files of an archive of ours into a directory.
func extract(archive, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	text, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	r := files{}
	if err := r.readAll(tar.NewReader(bytes.NewReader(text))); err != nil {
		return err
	}
	for path, f := range r {
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(path, f.content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
