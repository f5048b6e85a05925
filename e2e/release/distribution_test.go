// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/pe"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"
)

const published = "https://mirror.example.org/sealane"

// small is a distribution whose images and programs are small, but for the one that pushes images on this machine.
func small(t *testing.T) (Distribution, built) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	of, err := Checkout(t.Context(), root, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	d := Distribution{URL: published + "/", Say: func(string) {}, Build: Build{Release: of, Root: root,
		Arches: []string{"amd64", "arm64"}, Cache: t.TempDir(), Out: filepath.Join(t.TempDir(), "release")}}
	b := built{plugins: map[Platform]string{}, pushers: map[Platform]string{}}
	for _, p := range Platforms() {
		b.plugins[p] = filepath.Join(t.TempDir(), p.program(plugin))
		if err := os.WriteFile(b.plugins[p], []byte("plugin for "+p.String()), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	here := Platform{OS: "linux", Arch: runtime.GOARCH}
	if b.pushers[here], err = d.program(t.Context(), here, "e2e", "./cmd/push"); err != nil {
		t.Fatal(err)
	}
	return d, b
}

// assembled is the directory of a distribution.
func assembled(t *testing.T, d Distribution, b built) string {
	t.Helper()
	dir := t.TempDir()
	program := map[string]string{"amd64": filepath.Dir(b.pushers[Platform{OS: "linux", Arch: runtime.GOARCH}])}
	d.Arches, d.Out = []string{"amd64"}, dir
	for _, r := range Recipes() {
		r.Debian, r.Links, r.Package = nil, nil, "./cmd/push"
		archive, err := d.image(t.Context(), r, program)
		if err != nil {
			t.Fatal(err)
		}
		b.images = append(b.images, archive)
	}
	if err := d.assemble(t.Context(), dir, b); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDistribution: krew finds in the archives what its manifest says, sums are those of the files, and a second run
// makes the same bytes.
func TestDistribution(t *testing.T) {
	d, b := small(t)
	dir := assembled(t, d, b)
	text, err := os.ReadFile(filepath.Join(dir, "sealane.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest krewPlugin
	if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
		t.Fatal(err)
	}
	checkKrew(t, manifest)
	for _, p := range manifest.Spec.Platforms {
		of := Platform{OS: p.Selector.MatchLabels["os"], Arch: p.Selector.MatchLabels["arch"]}
		archive, err := os.ReadFile(filepath.Join(dir, path.Base(p.URI)))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(archive)); got != p.SHA256 || p.URI != published+"/"+path.Base(p.URI) {
			t.Errorf("%s: the archive at %s has the sum %s, the manifest says %s", of, p.URI, got, p.SHA256)
		}
		got := contentOf(t, p.URI, archive)
		if len(got) != 3 || got["-rwxr-xr-x "+p.Bin] != "plugin for "+of.String() ||
			!strings.Contains(got["-rwxr-xr-x "+of.completion()], plugin+" __complete ") ||
			!strings.Contains(got["-rw-r--r-- LICENSE"], "Apache License") {
			t.Errorf("%s: expected the program %s, its completion and a licence, found %q", of, p.Bin,
				slices.Collect(maps.Keys(got)))
		}
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", sumsFile)
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sums: %v: %s", err, out)
	}
	first, second := read(t, dir), read(t, assembled(t, d, b))
	if lines := strings.Count(first[sumsFile], "\n"); lines != len(first)-1 {
		t.Errorf("expected the sums of all %d other files, found %d", len(first)-1, lines)
	}
	for name, content := range first {
		if second[name] != content {
			t.Errorf("%s is another when it is made again", name)
		}
	}
}

// checkKrew checks a manifest as krew does before it installs a plugin, and krew-index before it takes one in:
// https://github.com/kubernetes-sigs/krew/blob/v0.4.4/internal/index/validation/validate.go.
func checkKrew(t *testing.T, m krewPlugin) {
	t.Helper()
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" ||
		m.Metadata["name"] != "sealane" || m.Spec.Version != "v1.2.3" {
		t.Errorf("%s %s %s %s", m.APIVersion, m.Kind, m.Metadata["name"], m.Spec.Version)
	}
	if s := m.Spec.ShortDescription; s == "" || len(s) > 50 || strings.Contains(s, "\n") || m.Spec.Description == "" {
		t.Errorf("short description %q of %d columns, description %q", s, len(s), m.Spec.Description)
	}
	seen := map[string]bool{}
	for _, p := range m.Spec.Platforms {
		labels := p.Selector.MatchLabels
		if !regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(p.SHA256) || p.Bin == "" || len(labels) != 2 {
			t.Errorf("platform %+v", p)
		}
		seen[labels["os"]+"/"+labels["arch"]] = true
	}
	if len(seen) != 6 || !seen["windows/arm64"] || !seen["darwin/arm64"] || !seen["linux/amd64"] {
		t.Errorf("platforms %v", seen)
	}
}

// TestBundle is unpacked, checked and pushed by the commands of its INSTALL.md, whose links lead into it.
func TestBundle(t *testing.T) {
	d, b := small(t)
	dir := assembled(t, d, b)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/sealane"
	guide, err := os.ReadFile(filepath.Join(d.Root, guide))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(d.install(string(guide))), -1)
	script := "set -e\n"
	for _, block := range blocks {
		if strings.Contains(block[1], "SHA256SUMS") || strings.HasPrefix(block[1], "./push") {
			script += block[1]
		}
	}
	script = strings.NewReplacer("linux-amd64", "linux-"+runtime.GOARCH,
		"registry.example.org/sealane", to).Replace(script)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s\n%s", err, out, stderr.Bytes(), script)
	}
	if pushed := strings.Count(string(out), to); pushed != len(Recipes()) {
		t.Errorf("expected %d images to be pushed, found: %s", len(Recipes()), out)
	}
	for _, r := range Recipes() {
		ref, err := name.NewTag(to + "/" + r.Name + ":v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Index(ref, remote.WithContext(t.Context())); err != nil {
			t.Errorf("install would ask for %s: %v", ref, err)
		}
	}
	bundle := filepath.Join(dir, "sealane-v1.2.3-airgap")
	text, err := os.ReadFile(filepath.Join(bundle, "INSTALL.md"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), example) {
		t.Errorf("INSTALL.md speaks of %s", example)
	}
	links := link.FindAllStringSubmatch(string(text), -1)
	linksLeadSomewhere(t, bundle)
	plugins, err := filepath.Glob(filepath.Join(bundle, "plugin", plugin+"-v1.2.3-*"))
	if err != nil || len(plugins) != len(Platforms()) || len(links) < 3 {
		t.Errorf("found %q, links %q, %v", plugins, links, err)
	}
}

// linksLeadSomewhere: those of each document of a bundle, to files in it.
func linksLeadSomewhere(t *testing.T, bundle string) {
	t.Helper()
	pages := 0
	err := filepath.WalkDir(bundle, func(page string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		pages++
		text, err := os.ReadFile(page)
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), l[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
		return err
	})
	if err != nil || pages < 20 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

// TestPluginForWindows compiles, is for Windows, and says its version; the source tree's path is not in it.
func TestPluginForWindows(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := Build{Release: Release{Version: "v1.2.3-windows"}, Root: root, Cache: t.TempDir()}
	path, err := b.program(t.Context(), Platform{OS: "windows", Arch: "amd64"}, ".", "./cmd/"+plugin)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pe.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != pe.IMAGE_FILE_MACHINE_AMD64 || !bytes.Contains(text, []byte(b.Version)) ||
		bytes.Contains(text, []byte(root+"/")) {
		t.Errorf("machine %#x, version %t, path of the source tree %t", f.Machine, bytes.Contains(text, []byte(b.Version)),
			bytes.Contains(text, []byte(root)))
	}
}

// TestOutIsReplacedOnlyIfItIsARelease: nobody's files go because of a mistyped --out.
func TestOutIsReplacedOnlyIfItIsARelease(t *testing.T) {
	dir := t.TempDir()
	if err := replaceable(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
	if err := replaceable(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "letter.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := replaceable(dir); err == nil || !strings.Contains(err.Error(), "letter.txt") {
		t.Errorf("got %v", err)
	}
	if err := (Distribution{Build: Build{Out: dir}}).Run(t.Context()); err == nil {
		t.Error("a directory with a letter was taken")
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	if err := replaceable(dir); err != nil {
		t.Error(err)
	}
}

// contentOf is what an archive holds: "mode name" → content.
func contentOf(t *testing.T, name string, archive []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(name string, mode os.FileMode, r io.Reader) {
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[mode.String()+" "+name] = string(content)
	}
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, f.Mode(), r)
		}
		return out
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Uname != "" || !h.ModTime.Before(time.Now()) {
			t.Errorf("%s: %+v", name, h)
		}
		add(h.Name, h.FileInfo().Mode(), r)
	}
}

// read all files of a directory.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range found {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = string(text)
	}
	return out
}
