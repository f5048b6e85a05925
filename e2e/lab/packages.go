// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// cniPlugins is where Debian puts the CNI plugins.
const cniPlugins = "/usr/lib/cni"

// What tests need of strongSwan, where Debian puts it.
const (
	charon         = "/usr/sbin/charon-systemd"
	kernelLibipsec = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so"
	openssl        = "/usr/lib/ipsec/plugins/libstrongswan-openssl.so"
)

// machinePrograms maps what the lab needs from the machine to Debian's package.
func machinePrograms() map[string]string {
	return map[string]string{
		"containerd":              "containerd",
		"ctr":                     "containerd",
		"containerd-shim-runc-v2": "containerd",
		"runc":                    "runc",
		cniPlugins + "/bridge":    "containernetworking-plugins",
		"nft":                     "nftables",
		"iptables":                "iptables",
		"conntrack":               "conntrack",
		"ip":                      "iproute2",
		"nsenter":                 "util-linux",
		"unshare":                 "util-linux",
		"mount":                   "mount",
	}
}

// testPrograms are what the project's tests run besides.
func testPrograms() map[string]string {
	return map[string]string{
		"ping":               "iputils-ping",
		"ldd":                "libc-bin",
		"qemu-system-x86_64": "qemu-system-x86",
		"modprobe":           "kmod",
		"depmod":             "kmod",
		"dpkg-deb":           "dpkg",
		"dnsmasq":            "dnsmasq-base",
		"ipset":              "ipset",
		"chromium":           "chromium",
		charon:               "charon-systemd",
		kernelLibipsec:       "libcharon-extra-plugins",
		openssl:              "libstrongswan-standard-plugins",
	}
}

// installPackages adds the missing Debian packages. On another distribution it
// says which programs to install.
func installPackages(ctx context.Context, needed map[string]string, say func(string)) error {
	programs, packages := missingPrograms(needed)
	if len(programs) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("these programs are missing: %s; install them (on Debian they are in %s)",
			strings.Join(programs, ", "), strings.Join(packages, ", "))
	}
	say("installing " + strings.Join(packages, ", "))
	// What is installed for its programs is not to run as a service of this machine, now or after a reboot.
	if slices.Contains(programs, charon) {
		if _, err := exec.LookPath("systemctl"); err == nil {
			defer func() { _ = run(ctx, "", "systemctl", "disable", "-q", "strongswan.service") }()
		}
	}
	install := append([]string{"DEBIAN_FRONTEND=noninteractive", "SYSTEMD_OFFLINE=1", "apt-get", "install", "-y", "-q",
		"--no-install-recommends"}, packages...)
	if run(ctx, "", "env", install...) == nil {
		return nil
	}
	// The package lists may be missing or stale.
	if err := run(ctx, "", "apt-get", "update", "-q"); err != nil {
		return fmt.Errorf("update package lists: %w", err)
	}
	if err := run(ctx, "", "env", install...); err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	return nil
}

func missingPrograms(needed map[string]string) (programs, packages []string) {
	for program, pkg := range needed {
		if found(program) {
			continue
		}
		programs = append(programs, program)
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	sort.Strings(programs)
	sort.Strings(packages)
	return programs, packages
}

func found(program string) bool {
	if filepath.IsAbs(program) {
		_, err := os.Stat(program)
		return err == nil
	}
	_, err := exec.LookPath(program)
	return err == nil
}
