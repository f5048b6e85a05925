// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// cache keeps what one test builds and downloads for the next one.
var cache string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if cache, err = os.MkdirTemp("", "sealane-release-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(cache) }()
		return m.Run()
	}())
}

// TestPackagesOfBothProcessors: the agent's packages are those of the processor, whatever this machine's is, with all
// that they need and nothing that nobody reads.
func TestPackagesOfBothProcessors(t *testing.T) {
	agent := recipe(t, "agent")
	dir := filepath.Join(cache, "debian")
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		content, err := agent.Content(t.Context(), Debian{Dir: dir, Arch: arch})
		if err != nil {
			t.Fatal(err)
		}
		f := unpacked(t, content.layers[0])
		nft, err := elf.NewFile(bytes.NewReader(f["usr/sbin/nft"].content))
		if err != nil {
			t.Fatalf("nft for %s: %v", arch, err)
		}
		if nft.Machine != machine {
			t.Errorf("nft for %s is for %s", arch, nft.Machine)
		}
		for path, x := range f {
			if strings.HasPrefix(path, "usr/share/man/") || strings.Contains(path, "gconv") {
				t.Errorf("%s: nobody reads %s", arch, path)
			}
			if x.link == "" {
				continue
			}
			target := x.link
			if !filepath.IsAbs(target) {
				target = filepath.Join("/", filepath.Dir(path), target)
			}
			if _, ok := f[strings.TrimPrefix(target, "/")]; !ok {
				t.Errorf("%s: %s leads to %s, which is not there", arch, path, target)
			}
		}
		again, err := agent.Content(t.Context(), Debian{Dir: dir, Arch: arch})
		if err != nil {
			t.Fatal(err)
		}
		if first, second := digest(t, content.layers[0]), digest(t, again.layers[0]); first != second {
			t.Errorf("the same packages make layer %s and then %s", first, second)
		}
	}
}

// TestImages are the same when they are built twice, come out of a registry as they went in, say what they are, and
// run.
func TestImages(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := Build{Release: Release{Version: "v1.2.3", Revision: strings.Repeat("a", 40), Created: time.Unix(1e9, 0)},
		Root: root, Arches: []string{runtime.GOARCH}, Cache: cache, Out: t.TempDir()}
	archives, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := map[string][]byte{}
	for _, path := range archives {
		if first[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, content := range first {
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(content, again) {
			t.Errorf("%s is another when it is built again (%v)", filepath.Base(path), err)
		}
	}
	server := httptest.NewServer(registry.New())
	defer server.Close()
	for i, r := range Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			pushed, err := Push(t.Context(), archives[i], strings.TrimPrefix(server.URL, "http://")+"/sealane")
			if err != nil {
				t.Fatal(err)
			}
			ref, err := name.NewDigest(pushed)
			if err != nil {
				t.Fatal(err)
			}
			img, err := remote.Image(ref, remote.WithContext(t.Context()), remote.WithPlatform(v1.Platform{OS: "linux",
				Architecture: runtime.GOARCH}))
			if err != nil {
				t.Fatal(err)
			}
			b.says(t, r, img)
			runs(t, r, img)
		})
	}
}

// says checks what an image and its list say.
func (b Build) says(t *testing.T, r Recipe, img v1.Image) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" || config.Config.User != r.User ||
		!config.Created.Equal(b.Created) {
		t.Errorf("version %q, user %q, created %s", got, config.Config.User, config.Created)
	}
	if old := slices.IndexFunc(config.History, func(h v1.History) bool { return !h.Created.Equal(b.Created) }); old >= 0 ||
		len(config.History) == 0 {
		t.Errorf("history %+v", config.History)
	}
	text, err := os.ReadFile(filepath.Join(b.Out, "sealane-"+r.Name+"-v1.2.3-"+runtime.GOARCH+".spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc spdx
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, p := range doc.Packages {
		listed[p.Name] = p.Version != ""
	}
	want := []string{"stdlib", "github.com/go-logr/logr"}
	for _, p := range append(want, r.Debian...) {
		if !listed[p] {
			t.Errorf("the list of %s does not name a version of %s", r.Name, p)
		}
	}
}

// runs starts the programs of an image in a directory of its files alone.
func runs(t *testing.T, r Recipe, img v1.Image) {
	t.Helper()
	root := t.TempDir()
	for path, x := range treeOf(t, mutate.Extract(img)) {
		to := filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(to), 0o755)
		if err != nil {
			t.Fatal(err)
		}
		if x.link != "" {
			err = os.Symlink(x.link, to)
		} else {
			err = os.WriteFile(to, x.content, os.FileMode(x.mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	commands := [][]string{{"/" + filepath.Base(r.Package), "--help"}}
	switch r.Name {
	case "agent":
		for _, program := range []string{"nft", "iptables", "ip6tables-save", "iptables-legacy", "ip6tables-nft"} {
			commands = append(commands, []string{"/usr/sbin/" + program, "--version"})
		}
	case "ipsec": // charon itself has no such flag, and runs
		commands = append(commands, []string{"/usr/sbin/swanctl", "-h"})
	}
	for _, c := range commands {
		cmd := exec.CommandContext(t.Context(), c[0], c[1:]...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		if err != nil && c[1] != "--help" || len(out) == 0 {
			t.Errorf("%s in the image: %v: %s", strings.Join(c, " "), err, out)
		}
	}
}

func recipe(t *testing.T, name string) Recipe {
	t.Helper()
	for _, r := range Recipes() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no recipe %s", name)
	return Recipe{}
}

func digest(t *testing.T, l v1.Layer) v1.Hash {
	t.Helper()
	d, err := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func unpacked(t *testing.T, l v1.Layer) files {
	t.Helper()
	r, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	return treeOf(t, r)
}

func treeOf(t *testing.T, r io.ReadCloser) files {
	t.Helper()
	defer func() { _ = r.Close() }()
	f := files{}
	if err := f.readAll(tar.NewReader(r)); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestNothingIsPushedInClear but to this machine.
func TestNothingIsPushedInClear(t *testing.T) {
	for url, want := range map[string]bool{
		"http://127.0.0.1:5000/v2/": true, "http://localhost:5000/v2/": true, "http://[::1]:5000/v2/": true,
		"https://10.1.2.3/v2/": true, "https://registry.example.org/v2/": true,
		"http://10.1.2.3:5000/v2/": false, "http://192.168.1.1/v2/": false, "http://registry.local/v2/": false,
		"http://registry.example.org/v2/": false, "http://localhost.example.org/v2/": false,
	} {
		sent := false
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		_, err := clearAtHome{sender(func() { sent = true })}.RoundTrip(request) //nolint:bodyclose // there is none
		if sent != want || (err == nil) != want {
			t.Errorf("%s: sent: %t, error: %v", url, sent, err)
		}
	}
}

// sender calls itself instead of sending.
type sender func()

func (s sender) RoundTrip(*http.Request) (*http.Response, error) {
	s()
	return &http.Response{Body: http.NoBody}, nil
}
