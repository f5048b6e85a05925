// SPDX-License-Identifier: Apache-2.0

package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a source tree with one commit for each subject, the first one tagged v0.1.0.
func repository(t *testing.T, subjects ...string) (root string, git func(args ...string) string) {
	t.Helper()
	root = t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := runGit(t, root, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run("init", "--quiet")
	for i, s := range subjects {
		run("commit", "--quiet", "--allow-empty", "--message", s)
		if i == 0 {
			run("tag", "v0.1.0")
		}
	}
	return root, run
}

func runGit(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	return git(t.Context(), root, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org",
		"-c", "commit.gpgsign=false"}, args...)...)
}

func TestVersionsThatAreNone(t *testing.T) {
	for _, good := range []string{"v1.2.3", "v0.1.0", "v1.2.3-rc.1"} {
		if err := CheckVersion(good); err != nil {
			t.Error(err)
		}
	}
	for bad, remedy := range map[string]string{
		"": "VERSION=v1.2.3", "1.2.3": "VERSION=v1.2.3", "v1.2": "VERSION=v1.2.3", "v1.02.3": "VERSION=v1.2.3",
		"accf8b6": "VERSION=v1.2.3", "v1.2.3-": "VERSION=v1.2.3", "v1.2.3+linux": "leave out +linux",
	} {
		if err := CheckVersion(bad); err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestTreesThatNobodyCouldCheckOut(t *testing.T) {
	root, git := repository(t, "first", "second")
	check := func(version, want string) {
		t.Helper()
		switch err := CheckTree(t.Context(), root, version); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", version, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", version, err, want)
		}
	}
	check("v0.2.0", "")
	check("v0.1.0", "git checkout v0.1.0")
	git("tag", "--annotate", "v0.2.0", "--message", "v0.2.0")
	check("v0.2.0", "")
	path := filepath.Join(root, "new.go")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	check("v0.2.0", "?? new.go\ncommit them")
	git("add", ".")
	check("v0.2.0", "A  new.go")
	if err := CheckTree(t.Context(), t.TempDir(), "v0.2.0"); err == nil {
		t.Error("a directory without a repository was taken")
	}
}

// TestNotes say what users notice, and name what was committed since the version before, by area, also when the version
// has its tag.
func TestNotes(t *testing.T) {
	root, git := repository(t, "dataplane: before", "memberagent/node: one `sl-<n>` of <n>", "no area",
		"dataplane/plan, memberagent/node: both", "docs: page")
	of, err := Checkout(t.Context(), root, "v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	write := func(changes string) {
		t.Helper()
		const head = "# Changelog\n\nBy some [rules](https://example.org).\n\n"
		if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(head+changes), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("## [Unreleased]\n### Added\n- A [page](docs/page.md#part) and [another](https://example.org).\n\n" +
		"## [0.1.0] - 2026-01-02\n- Long ago.\n")
	d := Distribution{Build: Build{Release: of, Root: root}, URL: published}
	notes := func() string {
		t.Helper()
		text, err := d.notes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	got := notes()
	at := 0
	for _, want := range []string{"# Sealane v0.2.0\n", of.Revision, published + "/sealane.yaml",
		"\n## Changes\n\n### Added\n- A [page](https://github.com/sealane-io/sealane/blob/v0.2.0/docs/page.md#part) and " +
			"[another](https://example.org).\n\n## Commits since v0.1.0\n",
		"\n### dataplane\n\n- dataplane/plan, memberagent/node: both (", "\n### docs\n\n- page (",
		"\n### memberagent\n\n- node: one `sl-<n>` of \\<n> (",
		"\n### other\n\n- no area ("} {
		next := strings.Index(got[at:], want)
		if next < 0 {
			t.Fatalf("expected %q after %q in:\n%s", want, got[:at], got)
		}
		at += next + len(want)
	}
	if strings.Contains(got, "before") || strings.Contains(got, "Long ago") {
		t.Errorf("what is of v0.1.0:\n%s", got)
	}
	git("tag", "v0.2.0")
	if again := notes(); again != got {
		t.Errorf("with its tag:\n%s", again)
	}
	git("tag", "--delete", "v0.1.0")
	write("## [Unreleased]\n- Not yet.\n\n## [0.2.0] - 2026-03-04\n- A page.\n\n## [0.1.0]\n- Long ago.\n")
	if first := notes(); !strings.HasSuffix(first, "\n## Changes\n\n- A page.\n") {
		t.Errorf("the first version, which the changelog names:\n%s", first)
	}
}
