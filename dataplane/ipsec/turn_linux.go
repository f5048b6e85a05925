// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"golang.org/x/sys/unix"
)

// turnName is an abstract socket, of which there is one in each network namespace.
const turnName = "@sealane-ipsec"

// turn is to run charon, or to hold its port while nobody does. One that no agent has told anything has it until
// another one, which was told, asks for it, and not again: its own agent may wait for long.
type turn struct {
	fd          int
	has, yields bool
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

// idle says whether one that was told nothing has the turn, as long as nobody asks for it.
func (t *turn) idle() bool {
	if t.yields || !t.bind() {
		return false
	}
	if n, _, err := unix.Recvfrom(t.fd, make([]byte, 1), 0); err == nil && n > 0 {
		t.release()
		t.yields = true
	}
	return t.has
}

func (t *turn) release() {
	if t.has {
		_ = unix.Close(t.fd)
	}
	t.has = false
}
