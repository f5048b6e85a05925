// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mark is an environment variable that every process of a lab inherits, with
// the lab's host link as its value: it finds processes nobody wrote down.
const mark = "SEALANE_LAB"

// process is a long-running program of a lab and, once started, its identity.
// A pid alone is none: it may have been given to another program since.
type process struct {
	Name string `json:"name"`
	// Node in whose namespaces the program runs; empty for the host's.
	Node string   `json:"node,omitempty"`
	Argv []string `json:"argv"`
	// Namespaces tells how deep into the node the program goes.
	Namespaces namespaces `json:"namespaces,omitempty"`
	// Restarts is how often it is started again when it dies while the lab comes up.
	Restarts int `json:"restarts,omitempty"`
	PID      int `json:"pid,omitempty"`
	// Started is the start time in clock ticks since boot.
	Started uint64 `json:"started,omitempty"`
}

type namespaces string

const (
	// nsHost leaves a program where the lab was started.
	nsHost namespaces = ""
	// nsNet is the node's network only: for the program that makes the rest.
	nsNet namespaces = "net"
	// nsAll is the node's network, mounts and host name.
	nsAll namespaces = "all"
)

// processes is the set of programs of one lab, one file each under <dir>/run.
type processes struct{ layout }

func (p processes) file(name string) string { return p.path("run", name+".json") }

// LogFile is where a process's output goes.
func (p processes) LogFile(name string) string { return p.path("logs", name+".log") }

func (p processes) Load(name string) (process, error) {
	data, err := os.ReadFile(p.file(name))
	if errors.Is(err, os.ErrNotExist) {
		return process{}, fmt.Errorf("no process %q in this lab; it has %s", name, strings.Join(p.Names(), ", "))
	}
	if err != nil {
		return process{}, fmt.Errorf("read process: %w", err)
	}
	var proc process
	if err := json.Unmarshal(data, &proc); err != nil {
		return process{}, fmt.Errorf("read process %s: %w", name, err)
	}
	return proc, nil
}

func (p processes) save(proc process) error {
	data, err := json.MarshalIndent(proc, "", "  ")
	if err != nil {
		return fmt.Errorf("encode process: %w", err)
	}
	return writeFile(p.file(proc.Name), data, 0o600)
}

// Names lists every process that was ever to be started, sorted.
func (p processes) Names() []string {
	files, _ := filepath.Glob(p.file("*"))
	names := make([]string, 0, len(files))
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	sort.Strings(names)
	return names
}

// Ensure starts the program unless it runs already. It is on record before it
// exists.
func (p processes) Ensure(proc process) error {
	if old, err := p.Load(proc.Name); err == nil && old.alive() {
		return nil
	}
	proc.PID, proc.Started = 0, 0
	if err := p.save(proc); err != nil {
		return err
	}
	return p.start(proc)
}

func (p processes) start(proc process) error {
	argv, err := p.argv(proc)
	if err != nil {
		return err
	}
	argv, err = p.inOwnCgroup(argv)
	if err != nil {
		return fmt.Errorf("start %s: %w", proc.Name, err)
	}
	if err := os.MkdirAll(p.path("logs"), 0o755); err != nil {
		return fmt.Errorf("start %s: %w", proc.Name, err)
	}
	log, err := os.OpenFile(p.LogFile(proc.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", proc.Name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the lab outlives whoever starts it
	cmd.Dir = "/"
	cmd.Env = p.environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if proc.Namespaces == nsHost {
		p.ownUser(cmd.SysProcAttr)
	}
	keepFilesPrivate()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", proc.Name, err)
	}
	go func() { _ = cmd.Wait() }() // reaped when it ends while the lab's starter still runs
	proc.PID = cmd.Process.Pid
	if s, err := readStat(proc.PID); err == nil {
		proc.Started = s.started
	}
	return p.save(proc)
}

// firstUser and the lab's index make the user that its control planes run as.
const firstUser = 1_500_000_000

// ownUser runs a control plane's program as the lab's own user, who may read
// and write any file like root. The kernel counts inotify instances per user,
// 128 by default: a lab needs about 80, so two would not fit under root.
func (p processes) ownUser(attr *syscall.SysProcAttr) {
	const capDACOverride, capDACReadSearch, capFowner = 1, 2, 3
	attr.Credential = &syscall.Credential{Uid: uint32(firstUser + p.index), NoSetGroups: true}
	attr.AmbientCaps = []uintptr{capDACOverride, capDACReadSearch, capFowner}
}

// keepFilesPrivate closes to children what this process inherited: a lock held
// by the caller, a pipe it waits on. A program of the lab outlives them all.
func keepFilesPrivate() {
	open, _ := filepath.Glob("/proc/self/fd/*")
	for _, path := range open {
		if fd, err := strconv.Atoi(filepath.Base(path)); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

func (p processes) environment() []string {
	out := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		mark + "=" + p.hostLink(),
	}
	if gc, ok := os.LookupEnv("GOGC"); ok { // how much memory whoever starts the lab gives for less work
		out = append(out, "GOGC="+gc)
	}
	return out
}

// argv is the command line as seen from the host. nsenter and not ip-netns:
// the latter mounts /sys anew, which hides the cgroups from kubelet. Neither
// forks, so the pid is the program's.
func (p processes) argv(proc process) ([]string, error) {
	switch proc.Namespaces {
	case nsNet:
		return append([]string{"nsenter", "--net=/run/netns/" + p.nodeNetns(proc.Node), "--"}, proc.Argv...), nil
	case nsAll:
		enter, err := p.enter(proc.Node)
		return append(enter, proc.Argv...), err
	default:
		// env(1) gets the program's capabilities in force: without them the
		// lab's own user cannot even look into a home directory.
		return append([]string{"env"}, proc.Argv...), nil
	}
}

// enter is the prefix of a command line that runs inside a node.
func (p processes) enter(node string) ([]string, error) {
	holder, err := p.Load(holderName(node))
	if err != nil {
		return nil, fmt.Errorf("enter node %s: %w", node, err)
	}
	if !holder.alive() {
		return nil, fmt.Errorf("enter node %s: its namespaces are gone", node)
	}
	ns := fmt.Sprintf("/proc/%d/ns/", holder.PID)
	return []string{"nsenter", "--net=" + ns + "net", "--mount=" + ns + "mnt", "--uts=" + ns + "uts", "--"}, nil
}

// holderName is the process that keeps a node's namespaces.
func holderName(node string) string { return node + "-init" }

// Start runs a recorded program again, with the arguments it had.
func (p processes) Start(name string) error {
	proc, err := p.Load(name)
	if err != nil {
		return err
	}
	return p.Ensure(proc)
}

// Stop asks a program to end, and after the grace period makes it. A grace of
// zero kills. It returns when the program is gone.
func (p processes) Stop(ctx context.Context, name string, grace time.Duration) error {
	proc, err := p.Load(name)
	if err != nil {
		return err
	}
	if grace > 0 && proc.alive() {
		if err := proc.signal(syscall.SIGTERM); err != nil {
			return err
		}
		soft, cancel := context.WithTimeout(ctx, grace)
		gone := waitGone(soft, proc)
		cancel()
		if gone {
			return nil
		}
	}
	if err := proc.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !waitGone(ctx, proc) {
		return fmt.Errorf("stop %s: still there: %w", name, context.Cause(ctx))
	}
	return nil
}

func waitGone(ctx context.Context, proc process) bool {
	for proc.alive() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}

func (p process) alive() bool {
	s, err := readStat(p.PID)
	return err == nil && p.PID > 0 && s.started == p.Started && s.state != 'Z'
}

func (p process) signal(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s (pid %d): %w", p.Name, p.PID, err)
	}
	return nil
}

// ForgetDead takes the identities of programs that have ended off the record,
// so that a later Ensure is not mistaken for their death.
func (p processes) ForgetDead() error {
	for _, name := range p.Names() {
		proc, err := p.Load(name)
		if err != nil {
			return err
		}
		if proc.PID == 0 || proc.alive() {
			continue
		}
		proc.PID, proc.Started = 0, 0
		if err := p.save(proc); err != nil {
			return err
		}
	}
	return nil
}

// Revive starts again what has died and may be. Of the first other that has died it tells, with the end of its log.
func (p processes) Revive() error {
	for _, name := range p.Names() {
		proc, err := p.Load(name)
		if err != nil || proc.PID == 0 || proc.alive() {
			continue
		}
		if proc.Restarts > 0 {
			proc.Restarts--
			if err := p.start(proc); err != nil {
				return err
			}
			continue
		}
		return fmt.Errorf("%s died; the end of %s:\n%s", name, p.LogFile(name), tail(p.LogFile(name), 15))
	}
	return nil
}

// tail is the last lines of a file, indented.
func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error()
	}
	all := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	all = all[max(0, len(all)-lines):]
	return "  " + string(bytes.Join(all, []byte("\n  ")))
}
