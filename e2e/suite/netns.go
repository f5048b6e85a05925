// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// InNetns calls f in the network namespace of a node. A socket that f opens stays in it.
func InNetns(t *testing.T, node string, f func() error) {
	t.Helper()
	ended := make(chan error)
	go func() {
		// Never unlocked, so the runtime ends the thread with the goroutine instead of reusing it.
		runtime.LockOSThread()
		ended <- func() error {
			ns, err := os.Open(filepath.Join("/run/netns", Lab().Netns(node)))
			if err != nil {
				return err
			}
			defer func() { _ = ns.Close() }()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the network of %s: %w", node, err)
			}
			return f()
		}()
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
