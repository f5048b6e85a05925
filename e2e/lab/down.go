// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// downTimeout bounds how long processes may take to vanish once killed.
const downTimeout = 3 * time.Minute

// Down removes a lab whatever state it is in: processes, network namespaces,
// links, mounts (they end with the last process that sees them), cgroups, and
// the state directory. A lab that does not exist is removed already.
func Down(ctx context.Context, name string, out io.Writer) error {
	p := newProgress(out)
	dir, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("remove lab %s: %w", name, err)
	}
	l, found, err := findLab(dir)
	if err != nil {
		return err
	}
	if !found {
		p.Line("no lab in " + dir)
		return nil
	}
	unlock, err := lockFile(l.lockPath())
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, downTimeout, fmt.Errorf("not done after %s", downTimeout))
	defer cancel()
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"processes", processes{l}.killAll},
		{"network", l.removeNetwork},
		{"cgroups", l.removeCgroups},
		{"files", l.removeFiles},
	} {
		if err := p.Step("remove "+step.title, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	if err := hostRegistry().Release(l.index); err != nil {
		return err
	}
	if err := os.Remove(l.lockPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the lock: %w", err)
	}
	return nil
}

// findLab finds a lab by the registry or, should that be lost, by its state.
func findLab(dir string) (layout, bool, error) {
	index, found, err := hostRegistry().Find(dir)
	if err != nil || found {
		return layout{index: index, dir: dir}, found, err
	}
	s, err := readState(dir)
	if errors.Is(err, os.ErrNotExist) {
		return layout{}, false, nil
	}
	return layout{index: s.Index, dir: dir}, err == nil, err
}

// killAll kills every process of the lab, again and again until the kernel shows none: what one of them started
// meanwhile is in the lab's cgroup too. So the order does not matter, nor whether a parent, a shim or the container
// runtime is gone already.
func (p processes) killAll(ctx context.Context) error {
	return poll(ctx, 20*time.Millisecond, func(context.Context) error {
		var left []string
		for _, q := range p.everything() {
			if err := q.signal(syscall.SIGKILL); err != nil {
				return err
			}
			left = append(left, fmt.Sprintf("%s (pid %d)", q.Name, q.PID))
		}
		if len(left) > 0 {
			return fmt.Errorf("still running: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

// everything is what the kernel shows and what is on record, alive.
func (p processes) everything() []process {
	all := p.remaining()
	for _, name := range p.Names() {
		if q, err := p.Load(name); err == nil && q.alive() {
			all = append(all, q)
		}
	}
	return all
}

func (l layout) removeNetwork(ctx context.Context) error {
	for _, ns := range l.netnsNames() {
		if err := run(ctx, "", "ip", "netns", "delete", ns); err != nil {
			return err
		}
	}
	// The link normally went with the namespace that held its other end.
	if _, err := os.Stat("/sys/class/net/" + l.hostLink()); err == nil {
		if err := run(ctx, "", "ip", "link", "delete", l.hostLink()); err != nil && !errors.Is(linkGone(l.hostLink()),
			os.ErrNotExist) {
			return err
		}
	}
	return poll(ctx, 20*time.Millisecond, func(context.Context) error {
		if err := linkGone(l.hostLink()); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("link %s is still there", l.hostLink())
		}
		return nil
	})
}

func linkGone(link string) error {
	_, err := os.Stat("/sys/class/net/" + link)
	return err
}

// removeCgroups waits for the kernel to let go of them.
func (l layout) removeCgroups(ctx context.Context) error {
	return poll(ctx, 20*time.Millisecond, func(context.Context) error { return l.tryRemoveCgroups() })
}

// removeFiles removes the state directory, but not through a mount.
func (l layout) removeFiles(context.Context) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && within(f[1], l.dir) {
			return fmt.Errorf("%s is mounted in the lab's directory: unmount it first", f[1])
		}
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}
