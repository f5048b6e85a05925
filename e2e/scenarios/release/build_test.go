// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/release"
	"github.com/sealane-io/sealane/e2e/sealane"
	"github.com/sealane-io/sealane/e2e/suite"
)

// build is Sealane as it would be published as a version.
type build struct {
	version string
	// plugin is the path of the program, images that of a directory with the images' archives.
	plugin, images string
	// refs are the images by their digests, once they are pushed: agent, controller, dns.
	refs map[string]string
}

// newBuild builds the images for this machine's processor, and the plugin.
func newBuild(t *testing.T, root, version string) *build {
	t.Helper()
	began := time.Now()
	b := release.Build{Release: release.Release{Version: version, Created: time.Unix(0, 0)}, Root: root,
		Arches: []string{runtime.GOARCH}, Cache: t.TempDir(), Out: t.TempDir()}
	shareDebian(t, b.Cache)
	if _, err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	plugin, err := b.Plugin(t.Context(), release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s built in %s", version, time.Since(began).Round(time.Second))
	return &build{version: version, plugin: plugin, images: b.Out}
}

// shareDebian has a build take the packages of Debian that labs have downloaded before.
func shareDebian(t *testing.T, cache string) {
	t.Helper()
	user, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	debian := filepath.Join(user, "sealane", "debian")
	if err := os.MkdirAll(debian, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(debian, filepath.Join(cache, "debian")); err != nil {
		t.Fatal(err)
	}
}

// run runs a command of the plugin of this version.
func (b *build) run(ctx context.Context, args ...string) (string, error) {
	return (&sealane.Sealane{Lab: suite.Lab(), Program: b.plugin}).Run(ctx, args...)
}

func (b *build) succeeds(t *testing.T, args ...string) string {
	t.Helper()
	began := time.Now()
	out, err := b.run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s of %s in %s:\n%s", args[0], b.version, time.Since(began).Round(time.Second), out)
	return out
}

// former is what the upgrade is from.
var former = flag.String("former", lastCommit, "the commit that the upgrade of the release scenario is from")

const lastCommit = "HEAD~1"

// trees are those of the former commit, and of the one that is checked out with what has changed since. Where git does
// not know the last commit, as in a shallow clone, both are the same.
func trees(t *testing.T) (before, present string) {
	t.Helper()
	present, err := lab.SourceRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before = t.TempDir()
	unpack := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
		`git -C "$0" archive --format=tar "$2" | tar -x -C "$1"`, present, before, *former)
	if out, err := unpack.CombinedOutput(); err != nil {
		if *former != lastCommit {
			t.Fatalf("-former=%s: expected a commit of this tree, found none: %v: %s", *former, err, out)
		}
		t.Logf("no commit %s, so both versions are of the same: %v: %s", *former, err, out)
		return present, present
	}
	return before, present
}
