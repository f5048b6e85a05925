// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// unnamed is the heading of commits whose subject names no area.
const unnamed = "other"

// notes are the release notes, in Markdown: how to get the release, and what was committed since the tag before it.
func (d Distribution) notes(ctx context.Context) ([]byte, error) {
	since, err := d.previous(ctx)
	if err != nil {
		return nil, err
	}
	commits, from := "HEAD", "all commits"
	if since != "" {
		commits, from = since+"..HEAD", "commits since "+since
	}
	log, err := git(ctx, d.Root, "log", "--no-merges", "--format=%H %s", commits)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	fmt.Fprintf(&out, `# Sealane %[1]s

Of %[2]s, commit %[3]s.

    kubectl krew install --manifest-url=%[4]s/sealane.yaml
    kubectl sealane install --karmada-context karmada-apiserver --host-context karmada-host

[Install](%[5]s/docs/install.md), [upgrade](%[5]s/docs/install.md#upgrade),
[without access to other networks](%[5]s/docs/airgap.md). `+"`SHA256SUMS`"+` has the sums of all files.

Below are %[6]s, by area.
`, d.Version, d.Created.UTC().Format(time.DateOnly), d.Revision, strings.TrimSuffix(d.URL, "/"),
		home+"/blob/"+d.Version, from)
	byArea := grouped(log)
	for _, area := range slices.SortedFunc(maps.Keys(byArea), areaOrder) {
		fmt.Fprintf(&out, "\n## %s\n\n%s", area, strings.Join(byArea[area], ""))
	}
	return []byte(out.String()), nil
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
