// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// Checkout returns the release of a version that the commit is of which is checked out in a source tree.
func Checkout(ctx context.Context, root, version string) (Release, error) {
	out, err := git(ctx, root, "log", "-1", "--format=%H %ct")
	if err != nil {
		return Release{}, fmt.Errorf("which commit is this? %w", err)
	}
	revision, seconds, _ := strings.Cut(out, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Release{}, fmt.Errorf("which commit is this? git log: %w", err)
	}
	return Release{Version: version, Revision: revision, Created: time.Unix(unix, 0)}, nil
}

// CheckVersion refuses what is no version of a release: v, and a semantic version without build metadata, as tags of
// images have no "+".
func CheckVersion(version string) error {
	parsed, err := utilversion.ParseSemantic(version)
	switch {
	case err != nil, !strings.HasPrefix(version, "v"):
		return fmt.Errorf("expected a semantic version that begins with v, found %q; run make release VERSION=v1.2.3, or "+
			"VERSION=v1.2.3-rc.1 for a version to be tried", version)
	case parsed.BuildMetadata() != "":
		return fmt.Errorf("expected a version without build metadata, found %q; leave out +%s: no tag of an image has it",
			version, parsed.BuildMetadata())
	}
	return nil
}

// CheckTree refuses a source tree that nobody could check out again, and a version that is another commit's.
func CheckTree(ctx context.Context, root, version string) error {
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("expected a source tree of committed files alone, found\n%s\ncommit them, or put them away by "+
			"git stash --include-untracked", changes)
	}
	tag, err := git(ctx, root, "tag", "--list", version)
	if err != nil || tag == "" {
		return err
	}
	tagged, err := git(ctx, root, "rev-list", "-n", "1", "refs/tags/"+tag)
	if err != nil {
		return err
	}
	head, err := git(ctx, root, "rev-parse", "HEAD")
	if err == nil && tagged != head {
		err = fmt.Errorf("expected the tag %s to be the commit that is checked out, %s, found it on %s; run "+
			"git checkout %[1]s, or release another version", version, head, tagged)
	}
	return err
}

// git runs git in a source tree, and returns what it printed, without the end of the last line.
func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}
