// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"golang.org/x/sys/unix"
)

// turnName is an abstract socket, of which there is one in each network namespace.
const turnName = "@sealane-ipsec"

// turn is to run charon, or to hold its port while nobody does. One that no agent has told anything has it while nobody
// else does, and until another one, which was told, asks for it.
type turn struct {
	fd  int
	has bool
	// foreign is somebody else's name, who has had it for longer than any pod of node agents takes to end.
	foreign bool
}

// bind says whether this one has the turn now.
func (t *turn) bind() bool {
	if t.has {
		return true
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: turnName}); err != nil {
		_ = unix.Close(fd)
		return false
	}
	t.fd, t.has = fd, true
	return true
}

// ask who has the turn for it.
func (t *turn) ask() {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	_ = unix.Sendto(fd, []byte{1}, 0, &unix.SockaddrUnix{Name: turnName})
	_ = unix.Close(fd)
}

// idle says whether one that was told nothing has the turn, which it gives to who asks for it. That one looks ten times
// as often, and asks again.
func (t *turn) idle() bool {
	if !t.bind() {
		return false
	}
	if n, _, err := unix.Recvfrom(t.fd, make([]byte, 1), 0); err == nil && n > 0 {
		t.release()
	}
	return t.has
}

func (t *turn) release() {
	if t.has {
		_ = unix.Close(t.fd)
	}
	t.has = false
}
