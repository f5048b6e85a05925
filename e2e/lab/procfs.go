// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type stat struct {
	state   byte
	started uint64
}

// readStat reads proc(5)'s stat file: the state is field 3, the start time
// field 22, both counted behind the name, which may hold anything.
func readStat(pid int) (stat, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return parseStat(data)
}

func parseStat(data []byte) (stat, error) {
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("parse process status: %d fields", len(fields))
	}
	started, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("parse process status: %w", err)
	}
	return stat{state: fields[0][0], started: started}, nil
}

// remaining lists processes that belong to a lab by what the kernel knows of
// them: inherited mark, cgroup, or network namespace.
func (l layout) remaining() []process {
	var found []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		s, err := readStat(pid)
		if err != nil || s.state == 'Z' || !l.owns(dir) {
			continue
		}
		found = append(found, process{Name: commandOf(dir), PID: pid, Started: s.started})
	}
	return found
}

func (l layout) owns(dir string) bool {
	return l.marked(dir) || l.inCgroup(dir) || l.inNetns(dir)
}

func (l layout) marked(dir string) bool {
	env, err := os.ReadFile(dir + "/environ")
	want := []byte(mark + "=" + l.hostLink())
	for _, v := range bytes.Split(env, []byte{0}) {
		if bytes.Equal(v, want) {
			return err == nil
		}
	}
	return false
}

func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func (l layout) inNetns(dir string) bool {
	ns, err := os.Stat(dir + "/ns/net")
	if err != nil {
		return false
	}
	for _, name := range l.netnsNames() {
		if mine, err := os.Stat("/run/netns/" + name); err == nil && os.SameFile(ns, mine) {
			return true
		}
	}
	return false
}

// netnsNames lists the lab's network namespaces that exist.
func (l layout) netnsNames() []string {
	files, _ := filepath.Glob("/run/netns/" + l.hostLink() + "-*")
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	return names
}

func commandOf(dir string) string {
	name, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return filepath.Base(dir)
	}
	return strings.TrimSpace(string(name))
}
