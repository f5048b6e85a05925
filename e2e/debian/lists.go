// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Lists are package lists of apt's. The zero value are the machine's own.
type Lists struct {
	// options of apt's programs; none for the machine's own.
	options []string
}

// ErrNoBackports is what Backports returns where the mirrors have none for this release of Debian.
var ErrNoBackports = errors.New("no backports of this release of Debian")

// Backports are the lists of <release>-backports, from the mirror and with the options that the machine's own sources
// have for the release. They are kept in dir: the machine's sources and lists stay as they are.
func Backports(ctx context.Context, dir string) (Lists, error) {
	release, err := codename("/etc/os-release")
	if err != nil {
		return Lists{}, err
	}
	entry, err := Lists{}.source(ctx, release)
	if err != nil {
		return Lists{}, err
	}
	text, err := os.ReadFile(entry.file)
	if err != nil {
		return Lists{}, fmt.Errorf("read apt's sources: %w", err)
	}
	suite := release + "-backports"
	source, err := entry.withSuite(string(text), suite)
	if err != nil {
		return Lists{}, err
	}
	file := filepath.Join(dir, "backports"+filepath.Ext(entry.file))
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return Lists{}, fmt.Errorf("make a directory for apt: %w", err)
		}
	}
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		return Lists{}, fmt.Errorf("write apt's source of %s: %w", suite, err)
	}
	l := Lists{options: []string{"-o", "Dir::Etc::SourceList=" + file, "-o", "Dir::Etc::SourceParts=/dev/null",
		// The user of apt's sandbox may not write there.
		"-o", "APT::Sandbox::User=root",
		"-o", "Dir::State=" + filepath.Join(dir, "state"), "-o", "Dir::Cache=" + filepath.Join(dir, "cache")}}
	if lists, err := filepath.Glob(filepath.Join(dir, "state", "lists", "*_Packages*")); err != nil || len(lists) > 0 {
		return l, err
	}
	if err := l.update(ctx); err != nil {
		// What is unreachable is not reported so.
		if strings.Contains(err.Error(), "does not have a Release file") {
			return Lists{}, fmt.Errorf("%w: %w", ErrNoBackports, err)
		}
		return Lists{}, err
	}
	return l, nil
}

// codename of a release of Debian, such as bookworm, by a file like /etc/os-release.
func codename(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("read the release of Debian: %w", err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "VERSION_CODENAME="); ok {
			return strings.Trim(name, `"`), nil
		}
	}
	return "", fmt.Errorf("%s names no VERSION_CODENAME", file)
}

// entry of apt's sources: of a file in the format of deb822(5) the number of a stanza, else that of a line.
type entry struct {
	file   string
	number int
}

// source finds what the machine has the main component of a release by.
func (l Lists) source(ctx context.Context, release string) (entry, error) {
	look := func() (string, error) {
		out, err := l.command(ctx, "apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(SOURCESENTRY)",
			"Created-By: Packages").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("look up apt's sources: %w: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if place, ok := strings.CutPrefix(line, release+" main "); ok {
				return strings.TrimSpace(place), nil
			}
		}
		return "", fmt.Errorf("apt has no source of %s: it has %s", release, out)
	}
	place, err := look()
	if err != nil {
		// Without package lists there are no codenames.
		if err := l.update(ctx); err != nil {
			return entry{}, err
		}
		if place, err = look(); err != nil {
			return entry{}, err
		}
	}
	file, number, _ := strings.Cut(place, ":")
	n, err := strconv.Atoi(number)
	if err != nil {
		return entry{}, fmt.Errorf("where apt has its source of %s: expected file:number, found %q", release, place)
	}
	return entry{file, n}, nil
}

// withSuite returns the entry alone, of the text of its file, with another suite.
func (e entry) withSuite(text, suite string) (string, error) {
	if filepath.Ext(e.file) != ".sources" {
		return e.line(text, suite)
	}
	n := 0
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var out []string
		skipping := false
		for line := range strings.SplitSeq(stanza, "\n") {
			switch field, _, _ := strings.Cut(line, ":"); {
			case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
				if !skipping {
					out = append(out, line)
				}
			case strings.EqualFold(field, "Suites"):
				skipping = true
				out = append(out, "Suites: "+suite)
			default:
				skipping = false
				out = append(out, line)
			}
		}
		if len(out) == 0 {
			continue
		}
		if n++; n == e.number {
			return strings.Join(out, "\n") + "\n", nil
		}
	}
	return "", fmt.Errorf("%s: expected %d stanzas at least, found %d", e.file, e.number, n)
}

// line of a file in the format of sources.list(5): deb [options] uri suite components.
func (e entry) line(text, suite string) (string, error) {
	lines := strings.Split(text, "\n")
	if e.number < 1 || e.number > len(lines) {
		return "", fmt.Errorf("%s: expected %d lines at least, found %d", e.file, e.number, len(lines))
	}
	line := lines[e.number-1]
	fields := strings.Fields(line)
	uri := 1
	if len(fields) > 1 && strings.HasPrefix(fields[1], "[") {
		for uri < len(fields) && !strings.HasSuffix(fields[uri], "]") {
			uri++
		}
		uri++
	}
	if len(fields) < uri+2 {
		return "", fmt.Errorf("%s:%d: expected a type, a URI and a suite, found %q", e.file, e.number, line)
	}
	fields[uri+1] = suite
	return strings.Join(fields, " ") + "\n", nil
}

// Dependency returns the first package on which one depends whose name has a prefix, as a metapackage does.
func (l Lists) Dependency(ctx context.Context, pkg, prefix string) (string, error) {
	look := func() ([]byte, error) {
		return l.command(ctx, "apt-cache", "depends", "--important", pkg).CombinedOutput()
	}
	out, err := look()
	if err != nil {
		// A new machine has no package lists.
		if err := l.update(ctx); err != nil {
			return "", err
		}
		out, err = look()
	}
	if err != nil {
		return "", fmt.Errorf("look up %s: %w: %s", pkg, err, out)
	}
	for _, field := range strings.Fields(string(out)) {
		if strings.HasPrefix(field, prefix) && field != pkg {
			return field, nil
		}
	}
	return "", fmt.Errorf("look up %s: it depends on no %s package: %s", pkg, prefix, out)
}

func (l Lists) update(ctx context.Context) error {
	cmd := l.command(ctx, "apt-get", "update", "-q")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("update package lists: %w: %s", err, out)
	}
	return nil
}

// command prepares a program of apt's that works on the lists.
func (l Lists) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, program, append(l.options[:len(l.options):len(l.options)], args...)...)
}
