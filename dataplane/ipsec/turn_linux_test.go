// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTurn: who was told nothing gives way to who was, and has the turn again when that has ended.
func TestTurn(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with its network namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("needs a network namespace of its own:", err)
	}
	var idle, told turn
	for range 2 {
		if !idle.idle() {
			t.Fatal("the first one has not the turn")
		}
	}
	if told.bind() {
		t.Fatal("two have the turn")
	}
	told.ask()
	if idle.idle() {
		t.Fatal("who was told nothing keeps the turn")
	}
	for range 2 {
		if !told.bind() {
			t.Fatal("who was told does not get the turn")
		}
	}
	idle.ask()
	if !told.bind() {
		t.Error("who was told gives way")
	}
	if idle.idle() {
		t.Error("two have the turn, once the first has given way")
	}
	told.release()
	if !idle.idle() {
		t.Error("nobody has the turn when who was told has ended")
	}
	idle.release()
}
