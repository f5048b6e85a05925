// SPDX-License-Identifier: Apache-2.0

// Guest is the first process of a virtual machine: it prepares what a Linux system has, runs one program,
// tells its exit code on the console and powers off.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// exitLine is what the host looks for.
const exitLine = "guest: exit %d\n"

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		code = 125
	}
	fmt.Printf(exitLine, code)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() (code int, err error) {
	for _, m := range []struct{ source, target, kind string }{
		{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"devtmpfs", "/dev", "devtmpfs"},
		{"tmpfs", "/run", "tmpfs"}, {"tmpfs", "/tmp", "tmpfs"}, {"cgroup2", "/sys/fs/cgroup", "cgroup2"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return 0, err
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, ""); err != nil {
			return 0, fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	// The tests mount one of their own over it, as every node has it.
	if err := os.MkdirAll("/etc", 0o755); err != nil {
		return 0, err
	}
	if err := os.WriteFile("/etc/resolv.conf", nil, 0o644); err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/task.json")
	if err != nil {
		return 0, err
	}
	var task struct{ Modules, Command []string }
	if err := json.Unmarshal(text, &task); err != nil {
		return 0, fmt.Errorf("read /task.json: %w", err)
	}
	if err := os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return 0, err
	}
	// The kernel loads modules by this program, of which it knows one place only.
	modprobe, err := exec.LookPath("modprobe")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile("/proc/sys/kernel/modprobe", []byte(modprobe), 0); err != nil {
		return 0, err
	}
	if err := network(); err != nil {
		return 0, err
	}
	if err := stamps(); err != nil {
		return 0, err
	}
	for _, m := range task.Modules {
		if out, err := exec.CommandContext(context.Background(), modprobe, m).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("load %s: %w: %s", m, err, out)
		}
	}
	cmd := exec.CommandContext(context.Background(), task.Command[0], task.Command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = os.Stdout, os.Stderr, "/tmp"
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// stamps has the kernel note when packets arrive for as long as it runs. It patches its code when the first socket
// wants that and when the last one goes, as ping's does. An emulated processor that passes there just then was seen to
// go on in the breakpoint that stands there meanwhile, for good.
func stamps() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMP, 1)
	}
	if err != nil {
		return fmt.Errorf("have packets stamped: %w", err)
	}
	return nil
}

// network sets up the link to the host, with the address that the emulator expects, where the machine has one.
func network() error {
	const script = `modprobe virtio_pci; modprobe virtio_net; [ ! -e /sys/class/net/eth0 ] ||
		{ ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; }`
	if out, err := exec.CommandContext(context.Background(), "sh", "-ec", script).CombinedOutput(); err != nil {
		return fmt.Errorf("set up the network: %w: %s", err, out)
	}
	return nil
}
