// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sealane-io/sealane/e2e/lab"
)

// process is one of Sealane's programs and the memory it uses, in kilobytes.
type process struct {
	Program, Place string
	PID            int
	// RSS is resident memory and Peak its maximum so far; File is the part of RSS that is the program's own
	// file, which processes share. PSS counts shared pages once over all processes; zero if not readable.
	RSS, Peak, File, PSS int
}

// memoryRow is a process just after the installation, just after the load, and when that was a while ago.
type memoryRow struct{ Idle, Loaded, Settled process }

func joinMemory(idle, loaded, settled []process) []memoryRow {
	of := func(list []process, pid int) process {
		if i := slices.IndexFunc(list, func(p process) bool { return p.PID == pid }); i >= 0 {
			return list[i]
		}
		return process{}
	}
	rows := make([]memoryRow, 0, len(settled))
	for _, p := range settled {
		rows = append(rows, memoryRow{Idle: of(idle, p.PID), Loaded: of(loaded, p.PID), Settled: p})
	}
	return rows
}

// memory lists Sealane's processes in a lab. A container's parent is a shim in its node's network namespace;
// the controller is a process of the lab itself.
func memory(l *lab.Lab, ref *reference) ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	controller := filepath.Join(l.Dir, "bin", "sealane-controller")
	var found []process
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(cmdline) == 0 {
			continue
		}
		argv := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
		var p process
		switch argv[0] {
		case controller:
			p = process{Program: "sealane-controller", Place: "Karmada host"}
		case "/sealane-agent":
			if len(argv) < 2 {
				continue
			}
			p = process{Program: "sealane-agent " + argv[1], Place: nodeOfProcess(l, dir)}
		case "/sealane-dns":
			p = process{Program: "sealane-dns", Place: nodeOfProcess(l, dir)}
		}
		if p.Place == "" || !p.read(dir) {
			continue
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b process) int {
		return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(a.Place, b.Place), cmp.Compare(a.PID, b.PID))
	})
	if ref != nil {
		found = append(found, ref.memory()...)
	}
	return found, nil
}

// nodeOfProcess is the lab's node whose network a container's shim lives in; empty if there is none.
func nodeOfProcess(l *lab.Lab, dir string) string {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return ""
	}
	shim, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", field(status, "PPid:")))
	if err != nil {
		return ""
	}
	for _, c := range l.Topology.Clusters {
		for _, n := range c.Nodes {
			if ns, err := os.Stat("/run/netns/" + l.Netns(n.Name)); err == nil && os.SameFile(ns, shim) {
				return n.Name
			}
		}
	}
	return ""
}

// read fills in the figures; a process that is gone has none.
func (p *process) read(dir string) bool {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return false
	}
	p.PID = field(status, "Pid:")
	p.RSS, p.Peak, p.File = field(status, "VmRSS:"), field(status, "VmHWM:"), field(status, "RssFile:")
	if rollup, err := os.ReadFile(dir + "/smaps_rollup"); err == nil {
		p.PSS = field(rollup, "Pss:")
	}
	return true
}

// field is the number behind a key of one of proc(5)'s files.
func field(text []byte, key string) int {
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}
