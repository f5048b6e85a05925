// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"

	"github.com/sealane-io/sealane/e2e/release"
)

// The images of the lab's own programs.
const (
	ImageController = "localhost/sealane/controller:dev"
	ImageAgent      = "localhost/sealane/agent:dev"
	ImageDNS        = "localhost/sealane/dns:dev"
	ImageIPsec      = "localhost/sealane/ipsec:dev"
	ImageWhereami   = "localhost/sealane/whereami:dev"
	ImageClient     = "localhost/sealane/client:dev"
	imagePause      = "registry.k8s.io/pause:3.10"
	imageCoreDNS    = "registry.k8s.io/coredns/coredns:lab"
)

// Image is a container image of the lab: those of a release, and those that the lab has besides.
type Image struct {
	// Ref is the image's name, with a tag.
	Ref string
	// Module is the directory of the program's module relative to the source
	// tree: "." for Sealane's own, e2e for those of the lab.
	Module string
	release.Recipe
}

// images lists what every node gets: the lab's own and, unless nodes pull them, Sealane's. The cluster DNS is the
// program of Sealane's, which has all that a cluster DNS needs, by a name of its own.
func (t Topology) images() []Image {
	own := func(program string) release.Recipe {
		return release.Recipe{Name: program, Package: "./images/" + program}
	}
	out := []Image{
		{Ref: imagePause, Module: "e2e", Recipe: own("pause")},
		{Ref: ImageWhereami, Module: "e2e", Recipe: own("whereami")},
		{Ref: ImageClient, Module: "e2e", Recipe: own("client")},
	}
	refs := map[string]string{"controller": ImageController, "agent": ImageAgent, "dns": ImageDNS, "ipsec": ImageIPsec}
	for _, r := range release.Recipes() {
		if r.Name == "dns" {
			out = append(out, Image{Ref: imageCoreDNS, Module: ".", Recipe: r})
		}
		if r.Name == "ipsec" && !t.IPsec {
			continue
		}
		if !t.PullImages {
			out = append(out, Image{Ref: refs[r.Name], Module: ".", Recipe: r})
		}
	}
	return out
}

// BuildImages compiles the images' programs from the module at root and writes
// all images into one archive, unless it holds them already. A digest of its
// content lies beside it, with the suffix .digest.
func BuildImages(ctx context.Context, root, archive string, list []Image) error {
	bin, unlock, err := programDir(root)
	if err != nil {
		return err
	}
	defer unlock()
	if err := buildPrograms(ctx, root, bin, list); err != nil {
		return err
	}
	of, err := madeOf(ctx, bin, list)
	if err != nil {
		return err
	}
	record := archive + ".madeof"
	if old, err := os.ReadFile(record); err == nil && string(old) == of {
		return nil
	}
	if err := assembleAll(ctx, bin, archive, list); err != nil {
		return err
	}
	return writeFile(record, []byte(of), 0o644)
}

// madeOf changes with anything that changes the images, and costs a tenth of what they do: the programs, Debian's
// archives, whose names have versions, the recipes, and the program that runs, which follows them.
func madeOf(ctx context.Context, bin string, list []Image) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the program that runs: %w", err)
	}
	files := []string{self}
	h := sha256.New()
	for _, image := range list {
		files = append(files, filepath.Join(bin, filepath.Base(image.Package)))
		archives, err := image.packages(ctx)
		if err != nil {
			return "", fmt.Errorf("image %s: %w", image.Ref, err)
		}
		fmt.Fprintf(h, "%+v %s\n", image, archives)
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("read what images are made of: %w", err)
		}
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("read what images are made of: %w", err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// assembleAll makes the images of programs in bin, and writes the archive if they are others than those in it.
func assembleAll(ctx context.Context, bin, archive string, list []Image) error {
	refs := map[name.Reference]v1.Image{}
	var digests []string
	for _, image := range list {
		ref, err := name.NewTag(image.Ref)
		if err != nil {
			return fmt.Errorf("image %s: %w", image.Ref, err)
		}
		built, err := image.assemble(ctx, bin)
		if err != nil {
			return fmt.Errorf("image %s: %w", image.Ref, err)
		}
		digest, err := built.ConfigName()
		if err != nil {
			return fmt.Errorf("image %s: %w", image.Ref, err)
		}
		refs[ref] = built
		digests = append(digests, image.Ref+"="+digest.String())
	}
	sort.Strings(digests)
	digest := strings.Join(digests, "\n")
	if old, err := os.ReadFile(archive + ".digest"); err == nil && string(old) == digest {
		return nil
	}
	if err := tarball.MultiRefWriteToFile(archive, refs); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return writeFile(archive+".digest", []byte(digest), 0o644)
}

// buildPrograms compiles the images' programs into bin, each with the versions
// of its own module.
func buildPrograms(ctx context.Context, root, bin string, list []Image) error {
	packages := map[string][]string{}
	for _, image := range list {
		packages[image.Module] = append(packages[image.Module], image.Package)
	}
	for _, module := range sortedKeys(packages) {
		args := []string{"CGO_ENABLED=0", "go", "-C", filepath.Join(root, module), "build", "-trimpath",
			"-ldflags", "-s -w", "-o", bin + "/"}
		if err := run(ctx, "", "env", append(args, packages[module]...)...); err != nil {
			return fmt.Errorf("build the images' programs: %w", err)
		}
	}
	return nil
}

// programDir is where the programs of a source tree are kept from one build to
// the next, so that an unchanged one is not linked again. It is locked.
func programDir(root string) (dir string, unlock func(), err error) {
	cache, err := cacheDir()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(cache, "images", fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:16])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("create build directory: %w", err)
	}
	unlock, err = lockFile(dir + ".lock")
	return dir, unlock, err
}

// debianCache is what was downloaded of Debian before, if anything was.
func debianCache() (release.Debian, error) {
	cache, err := cacheDir()
	return release.Debian{Dir: filepath.Join(cache, "debian"), Arch: runtime.GOARCH}, err
}

// packages are the paths of the archives of Debian's packages in the image.
func (image Image) packages(ctx context.Context) ([]string, error) {
	if len(image.Debian) == 0 {
		return nil, nil
	}
	d, err := debianCache()
	if err != nil {
		return nil, err
	}
	return d.Fetch(ctx, image.Debian...)
}

// assemble makes the image of a program in bin.
func (image Image) assemble(ctx context.Context, bin string) (v1.Image, error) {
	d, err := debianCache()
	if err != nil {
		return nil, err
	}
	content, err := image.Content(ctx, d)
	if err != nil {
		return nil, err
	}
	return image.Assemble(release.Release{}, runtime.GOARCH, filepath.Join(bin, filepath.Base(image.Package)), content)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// buildImages builds the images whose programs exist in the source tree and
// closes built.
func (l *Lab) buildImages(ctx context.Context, root string, built chan<- struct{}) error {
	var list []Image
	for _, image := range l.Topology.images() {
		if sources, _ := filepath.Glob(filepath.Join(root, image.Module, image.Package, "*.go")); len(sources) > 0 {
			list = append(list, image)
		}
	}
	if err := os.MkdirAll(l.path("images"), 0o755); err != nil {
		return fmt.Errorf("create image directory: %w", err)
	}
	if err := BuildImages(ctx, root, l.imageArchive(), list); err != nil {
		return err
	}
	close(built)
	return nil
}

// loadOwnImages loads the built images into a node that has others.
func (l *Lab) loadOwnImages(ctx context.Context, node string) error {
	built, err := os.ReadFile(l.imageArchive() + ".digest")
	if err != nil {
		return fmt.Errorf("read image digest: %w", err)
	}
	record := l.nodePath(node, "images")
	if loaded, err := os.ReadFile(record); err == nil && bytes.Equal(loaded, built) {
		return nil
	}
	if err := l.loadImages(ctx, node, l.imageArchive()); err != nil {
		return err
	}
	return writeFile(record, built, 0o644)
}

// TrustRegistry lets all nodes pull from a registry, HOST:PORT, whose certificate is of an authority (PEM).
func (l *Lab) TrustRegistry(ctx context.Context, registry string, authority []byte) error {
	// As a server, not as a host before it: what a host lacks is asked of the server, by another authority.
	hosts := fmt.Sprintf("server = %q\nca = \"ca.crt\"\n", "https://"+registry)
	for _, n := range l.nodes() {
		for name, content := range map[string]string{"hosts.toml": hosts, "ca.crt": string(authority)} {
			enter, err := l.procs.enter(n.Name)
			if err != nil {
				return err
			}
			write := append(enter[1:], "sh", "-ec", `mkdir -p "$(dirname "$0")"; cat >"$0"`,
				"/etc/containerd/certs.d/"+registry+"/"+name)
			if err := run(ctx, content, enter[0], write...); err != nil {
				return fmt.Errorf("let %s trust %s: %w", n.Name, registry, err)
			}
		}
	}
	return nil
}

func (l *Lab) imageArchive() string { return l.path("images", "lab.tar") }

// LoadImages imports a Docker or OCI image archive into every node.
func (l *Lab) LoadImages(ctx context.Context, archive string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range l.nodes() {
		g.Go(func() error { return l.loadImages(ctx, n.Name, archive) })
	}
	return g.Wait()
}

func (l *Lab) loadImages(ctx context.Context, node, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	defer func() { _ = f.Close() }()
	enter, err := l.procs.enter(node)
	if err != nil {
		return err
	}
	argv := append(enter, "ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", "-")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load %s into %s: %w: %s", archive, node, err, bytes.TrimSpace(out))
	}
	return nil
}
