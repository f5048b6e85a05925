// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// badSocket gives errors, and then packets, and then errors for ever.
type badSocket struct {
	net.PacketConn
	errors, packets int
	err             error
	reads           int
}

func (s *badSocket) ReadFrom(p []byte) (int, net.Addr, error) {
	s.reads++
	switch {
	case s.errors > 0:
		s.errors--
		return 0, nil, s.err
	case s.packets > 0:
		s.packets--
		return len(p), &net.IPAddr{}, nil
	}
	return 0, nil, net.ErrClosed
}

// An agent must not end because the kernel had no memory for one packet of those that only measure.
func TestReceiveOutlivesErrors(t *testing.T) {
	got := 0
	socket := &badSocket{errors: 3, packets: 2, err: syscall.ENOBUFS}
	err := receiveFrom(socket, make([]byte, 16), func(packet []byte, _ net.Addr) { got += len(packet) })
	if got != 2*16 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("received %d bytes, ended by %v; want 32 and the end of the socket", got, err)
	}
}

func TestReceiveGivesABrokenSocketUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := &badSocket{errors: 1 << 20, err: syscall.EIO}
		begun := time.Now()
		err := receiveFrom(socket, make([]byte, 16), func([]byte, net.Addr) { t.Error("there was nothing to receive") })
		if !errors.Is(err, syscall.EIO) || socket.reads != receiveTries {
			t.Errorf("%d reads, ended by %v; want %d and EIO", socket.reads, err, receiveTries)
		}
		if took := time.Since(begun); took != (receiveTries-1)*receiveAgain {
			t.Errorf("gave up after %s, want a pause of %s before each next read", took, receiveAgain)
		}
	})
}
