// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unnamed is the heading of commits whose subject names no area.
const unnamed = "other"

// changelog is the file of what users notice, and unreleased the heading there of what no version has yet.
const changelog, unreleased = "CHANGELOG.md", "[Unreleased]"

// notes are the release notes, in Markdown: how to get the release, what users notice, and what was committed since the
// tag before it. A version without one before it has no such list: all is new.
func (d Distribution) notes(ctx context.Context) ([]byte, error) {
	since, err := d.previous(ctx)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(d.Root, changelog))
	if err != nil {
		return nil, err
	}
	pages := home + "/blob/" + d.Version
	var out strings.Builder
	fmt.Fprintf(&out, `# Sealane %[1]s

Of %[2]s, commit %[3]s.

    kubectl krew install --manifest-url=%[4]s/sealane.yaml
    kubectl sealane install --karmada-context karmada-apiserver --host-context karmada-host

[Install](%[5]s/docs/install.md), [upgrade](%[5]s/docs/install.md#upgrade),
[without access to other networks](%[5]s/docs/airgap.md). `+"`SHA256SUMS`"+` has the sums of all files.

## Changes

%[6]s
`, d.Version, d.Created.UTC().Format(time.DateOnly), d.Revision, strings.TrimSuffix(d.URL, "/"), pages,
		d.noticed(string(text), pages))
	if since == "" {
		return []byte(out.String()), nil
	}
	log, err := git(ctx, d.Root, "log", "--no-merges", "--format=%H %s", since+"..HEAD")
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "\n## Commits since %s\n", since)
	byArea := grouped(log)
	for _, area := range slices.SortedFunc(maps.Keys(byArea), areaOrder) {
		fmt.Fprintf(&out, "\n### %s\n\n%s", area, strings.Join(byArea[area], ""))
	}
	return []byte(out.String()), nil
}

// noticed is what a changelog has of this version, or if it does not name it of what is unreleased, with links that
// lead to pages of the version.
func (d Distribution) noticed(text, pages string) string {
	section := func(heading string) (string, bool) {
		_, rest, found := strings.Cut(text, "\n## "+heading)
		_, rest, _ = strings.Cut(rest, "\n") // the heading may go on with a date
		rest, _, _ = strings.Cut(rest, "\n## ")
		return strings.TrimSpace(rest), found
	}
	out, found := section("[" + strings.TrimPrefix(d.Version, "v") + "]")
	if !found {
		out, _ = section(unreleased)
	}
	return link.ReplaceAllString(out, "]("+pages+"/$1$2")
}

// previous returns the nearest tag of a version before this one, or "" where there is none.
func (d Distribution) previous(ctx context.Context) (string, error) {
	tag, err := git(ctx, d.Root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "--exclude="+d.Version, "HEAD")
	var exit *exec.ExitError
	if errors.As(err, &exit) && strings.Contains(err.Error(), "No ") { // names found, tags can describe
		return "", nil
	}
	return tag, err
}

// areaOrder is that of the alphabet, with what no area is named for at the end.
func areaOrder(a, b string) int {
	switch {
	case a == unnamed && b != unnamed:
		return 1
	case b == unnamed && a != unnamed:
		return -1
	}
	return strings.Compare(a, b)
}

// grouped returns the lines of a log, "hash subject" each, as items of lists by area: that of "memberagent/node: what
// changes" is memberagent, where it is "node: what changes". A commit of several areas is with the first, and names
// all.
func grouped(log string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(log) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		area, text, found := strings.Cut(subject, ": ")
		if !found {
			area, text = unnamed, subject
		}
		top, rest, _ := strings.Cut(area, "/")
		if first, _, several := strings.Cut(area, ", "); several {
			top, _, _ = strings.Cut(first, "/")
			rest = area
		}
		if rest != "" {
			text = rest + ": " + text
		}
		out[top] = append(out[top], fmt.Sprintf("- %s (%.9s)\n", escaped(text), hash))
	}
	return out
}

// escaped is a text as Markdown that shows it as it is. What stands between backquotes is code there, too.
func escaped(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}
