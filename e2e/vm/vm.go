// SPDX-License-Identifier: Apache-2.0

// Package vm runs a program of this machine under another kernel: in a virtual machine under software
// emulation, with nothing but the program's files in memory. It shows that what this machine's kernel lacks,
// such as WireGuard, works where a kernel has it; it says nothing about speed.
package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/sealane-io/sealane/e2e/hostprogram"
)

// Guest is what runs in a virtual machine.
type Guest struct {
	Kernel Kernel
	// Init is the program of package guest.
	Init string
	// Programs of this machine's PATH that the guest has, too.
	Programs []string
	// Files by their path there: the path here.
	Files map[string]string
	// Network says that the guest's first network namespace reaches what listens on this machine's loopback, at
	// HostAddress.
	Network bool
	// Plain has one processor, which the emulator runs by itself, and no cmpxchg16b. It is slower.
	Plain bool
	// Modules that are loaded before the command runs, besides those that the kernel asks for.
	Modules []string
	// Command to run, by its path there.
	Command []string
}

// HostAddress is this machine in a guest with a network.
const HostAddress = "10.0.2.2"

// modprobe loads what the kernel asks for.
const modprobe = "modprobe"

// exited is the last line of package guest.
var exited = regexp.MustCompile(`(?m)^guest: exit (\d+)\r?$`)

// Run boots the guest, copies its console to out, and returns the command's exit code. It needs room for the
// guest's files in dir.
func (g Guest) Run(ctx context.Context, dir string, out io.Writer) (int, error) {
	initramfs := filepath.Join(dir, "initramfs")
	if err := g.pack(ctx, dir, initramfs); err != nil {
		return 0, err
	}
	var console bytes.Buffer
	nic := "none"
	if g.Network {
		nic = "user,model=virtio-net-pci"
	}
	processor := []string{"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"}
	if g.Plain {
		processor = []string{"-accel", "tcg,thread=single", "-cpu", "max,cx16=off", "-smp", "1"}
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(processor, "-m", "1536",
		"-nodefaults", "-display", "none", "-serial", "stdio", "-nic", nic, "-no-reboot",
		"-kernel", g.Kernel.Image, "-initrd", initramfs,
		"-append", "console=ttyS0 loglevel=5 oops=panic panic=-1 random.trust_cpu=on")...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &console), out
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("run the virtual machine: %w", errors.Join(err, ctx.Err()))
	}
	m := exited.FindSubmatch(console.Bytes())
	if m == nil {
		return 0, errors.New("the virtual machine ended before its command did; see its console")
	}
	return strconv.Atoi(string(m[1]))
}

func (g Guest) pack(ctx context.Context, dir, initramfs string) error {
	task, err := json.Marshal(map[string][]string{"modules": g.Modules, "command": g.Command})
	if err != nil {
		return fmt.Errorf("encode the guest's task: %w", err)
	}
	taskFile := filepath.Join(dir, "task.json")
	if err := os.WriteFile(taskFile, task, 0o600); err != nil {
		return fmt.Errorf("write the guest's task: %w", err)
	}
	files := hostprogram.New()
	for _, p := range append([]string{modprobe}, g.Programs...) {
		if err := files.Add(ctx, p); err != nil {
			return fmt.Errorf("add %s to the guest: %w", p, err)
		}
	}
	// Scripts name it by this path.
	sh, err := exec.LookPath("sh")
	if err != nil {
		return fmt.Errorf("add sh to the guest: %w", err)
	}
	if _, there := files.Regular["/bin/sh"]; !there {
		files.Links["/bin/sh"] = sh
	}
	files.Regular["/init"], files.Regular["/task.json"] = g.Init, taskFile
	for dst, src := range g.Files {
		files.Regular[dst] = src
	}
	modules := filepath.Join("/lib/modules", g.Kernel.Release)
	if err := addTree(files, filepath.Join(g.Kernel.Root, modules), modules); err != nil {
		return fmt.Errorf("add the kernel's modules: %w", err)
	}
	return writeInitramfs(initramfs, files)
}
