// SPDX-License-Identifier: Apache-2.0

// Package netnstest runs the tests of a package in network and mount namespaces of their own. Only tests import it.
package netnstest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

var inNamespace = flag.Bool("in-namespace", false, "set by the test for its own child")

// Main is what TestMain calls: it runs the tests in a child with namespaces of its own, which end with it, and exits.
// The machine's control sockets and its xtables lock are hidden from them. The child calls enter first, nil for nothing
// to set up. They need root.
func Main(m *testing.M, enter func() error) {
	flag.Parse()
	if *inNamespace {
		err := hide()
		if err == nil && enter != nil {
			err = enter()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	child := exec.CommandContext(context.Background(), "/proc/self/exe", append(os.Args[1:], "-in-namespace")...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	err := child.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need root:", err)
		os.Exit(1)
	}
}

func hide() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}
