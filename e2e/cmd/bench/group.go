// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// group is a cgroup: the path of a container's in the hierarchies that share out and count processor time.
type group string

// ends are the groups of the programs on a path: the gateways' cables, the client and the server.
type ends struct{ ClientCable, ServerCable, Client, Server group }

// endsOf finds them for a client's and a server's node.
func endsOf(l *lab.Lab, clientGateway, serverGateway, client, server string) (ends, error) {
	var e ends
	var errs []error
	for _, want := range []struct {
		group      *group
		argv, node string
	}{
		{&e.ClientCable, "/sealane-agent node", clientGateway},
		{&e.ServerCable, "/sealane-agent node", serverGateway},
		{&e.Client, "/client", client},
		{&e.Server, "/whereami", server},
	} {
		var err error
		*want.group, err = groupOf(l, want.argv, want.node)
		errs = append(errs, err)
	}
	return e, errors.Join(errs...)
}

// used is the processor time of all programs on the path so far. Work that the kernel does in threads of its
// own is not in it.
func (e ends) used() (time.Duration, error) {
	var sum time.Duration
	var errs []error
	for _, g := range []group{e.ClientCable, e.ServerCable, e.Client, e.Server} {
		used, err := g.used()
		sum += used
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// groupOf finds a container's process by how its command line begins, and returns its cgroup.
func groupOf(l *lab.Lab, argv, node string) (group, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return "", fmt.Errorf("list processes: %w", err)
	}
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || !strings.HasPrefix(strings.ReplaceAll(string(cmdline), "\x00", " ")+" ", argv+" ") {
			continue
		}
		if nodeOfProcess(l, dir) != node {
			continue
		}
		text, err := os.ReadFile(dir + "/cgroup")
		if err != nil {
			return "", fmt.Errorf("cgroup of %s on %s: %w", argv, node, err)
		}
		return parseGroup(string(text))
	}
	return "", fmt.Errorf("no process %s on %s", argv, node)
}

// parseGroup reads /proc/PID/cgroup: of version 1 the line of the controller cpu counts, or else that of version 2.
func parseGroup(text string) (group, error) {
	var unified group
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case slices.Contains(strings.Split(controllers, ","), "cpu"):
			return group(path), nil
		case controllers == "" && path != "":
			unified = group(path)
		}
	}
	if unified == "" {
		return "", fmt.Errorf("no cgroup with processors in %q", text)
	}
	return unified, nil
}

// members are the files that list a group's processes: of both controllers, or of version 2.
func (g group) members() []string {
	var files []string
	for _, hierarchy := range []string{"cpu", "cpuacct"} {
		file := filepath.Join("/sys/fs/cgroup", hierarchy, string(g), "cgroup.procs")
		if _, err := os.Stat(file); err == nil {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return []string{filepath.Join("/sys/fs/cgroup", string(g), "cgroup.procs")}
	}
	return files
}

// join puts a process into the group: it gets the group's share of the processors.
func (g group) join(pid int) error {
	for _, file := range g.members() {
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("put a process into the cgroup of another: %w", err)
		}
	}
	return nil
}

// used is the processor time of the group's processes so far.
func (g group) used() (time.Duration, error) {
	if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", string(g), "cpuacct.usage")); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(n), err
	}
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", string(g), "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("processor time of a cgroup: %w", err)
	}
	return time.Duration(field(text, "usage_usec")) * time.Microsecond, nil
}
