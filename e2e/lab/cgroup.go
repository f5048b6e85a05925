// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Every process of a lab is in a cgroup below the lab's own, and so is what it starts: children are born into their
// parent's cgroup, and a node's runc (manifests/runc.sh) puts its containers below the node's. So what belongs to a lab
// is known whoever started it and whatever became of its parents.

// cgroup is the path of the lab's cgroup within a hierarchy.
func (l layout) cgroup() string { return "/sealane-" + l.hostLink() }

// processCgroup is the leaf for the lab's own programs; those of version 2 hold processes or children, not both.
func (l layout) processCgroup() string { return l.cgroup() + "/programs" }

// trackingHierarchy is where a mounted cgroup hierarchy is that any process can be put into: that of version 2, which
// hybrid systems have beside version 1, or else one of version 1 without limits of its own.
func trackingHierarchy() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	return chooseHierarchy(string(mounts))
}

func chooseHierarchy(mounts string) (string, error) {
	rank := func(kind, options string) int {
		has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
		switch {
		case kind == "cgroup2":
			return 3
		case kind == "cgroup" && has("freezer"):
			return 2
		case kind == "cgroup" && has("pids"):
			return 1
		}
		return 0
	}
	best, found := 0, ""
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 3 && rank(f[2], f[3]) > best {
			best, found = rank(f[2], f[3]), f[1]
		}
	}
	if best == 0 {
		return "", errors.New("expected a cgroup hierarchy of version 2, or of version 1 with freezer or pids, to be mounted")
	}
	return found, nil
}

// inOwnCgroup is a command line that enters the lab's cgroup and then becomes argv, with the same pid.
func (l layout) inOwnCgroup(argv []string) ([]string, error) {
	hierarchy, err := trackingHierarchy()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(hierarchy, l.processCgroup())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the lab's cgroup: %w", err)
	}
	return append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(dir, "cgroup.procs")}, argv...), nil
}

func (l layout) inCgroup(dir string) bool {
	data, _ := os.ReadFile(dir + "/cgroup")
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && within(parts[2], l.cgroup()) {
			return true
		}
	}
	return false
}

// cgroups lists the lab's cgroups in every mounted hierarchy of version 1 and
// in version 2, parents first.
func (l layout) cgroups() ([]string, error) {
	tops, err := filepath.Glob("/sys/fs/cgroup" + l.cgroup())
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	more, err := filepath.Glob("/sys/fs/cgroup/*" + l.cgroup())
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var all []string
	for _, top := range append(tops, more...) {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
	}
	return all, nil
}

// tryRemoveCgroups removes the lab's cgroups. The kernel keeps one busy for a
// moment after its last process.
func (l layout) tryRemoveCgroups() error {
	groups, err := l.cgroups()
	if err != nil {
		return err
	}
	slices.Reverse(groups)
	var errs []error
	for _, g := range groups {
		if err := syscall.Rmdir(g); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", g, err))
		}
	}
	return errors.Join(errs...)
}
