// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// selector is an attribute that says, by its name, what nf_tables is asked for.
type selector struct {
	kind int
	name string
}

// ask sends a request of nf_tables and calls f with each answer's attributes: with flag NLM_F_DUMP for all there are.
// What does not exist is ENOENT. A dump during which others have changed something is ErrDumpInterrupted: it may lack
// what was there all the time.
func ask(request, answer, flags int, f plan.Family, each func(message []byte), of ...selector) error {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|request, flags)
	header := &nl.Nfgenmsg{Version: nl.NFNETLINK_V0}
	if f != 0 {
		header.NfgenFamily = uint8(nlFamily(f))
	}
	r.AddData(header)
	for _, s := range of {
		r.AddData(nl.NewRtAttr(s.kind, nl.ZeroTerminated(s.name)))
	}
	return r.ExecuteIter(unix.NETLINK_NETFILTER, uint16(unix.NFNL_SUBSYS_NFTABLES<<8|answer), func(m []byte) bool {
		if len(m) >= nl.SizeofNfgenmsg {
			each(m[nl.SizeofNfgenmsg:])
		}
		return true
	})
}

// generation is how many transactions there were in this network namespace, of anybody's. It is never 0.
func generation() (uint32, error) {
	var gen uint32
	err := ask(unix.NFT_MSG_GETGEN, unix.NFT_MSG_NEWGEN, 0, 0, func(m []byte) { gen = number(attr(m, unix.NFTA_GEN_ID)) })
	if err == nil && gen == 0 {
		err = errors.New("expected a generation, found none")
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nftables: %w", err)
	}
	return gen, nil
}

// before says whether one generation was before another. They begin anew after the last.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// following is the generation after another.
func following(gen uint32) uint32 {
	if gen++; gen == 0 {
		gen++
	}
	return gen
}

// nftEvents tell what transactions have changed, of anybody's. What is not read yet waits in the kernel.
type nftEvents struct {
	socket int
	buffer []byte
}

// nftEvent is one change, without its header.
type nftEvent struct {
	kind    uint16 // NFT_MSG_…
	family  uint8
	message []byte
}

// errLost says that some events could not be received.
var errLost = errors.New("events of nftables were lost")

func subscribe() (*nftEvents, error) {
	// A bulk of changes may be more than this: it is better listed anew.
	const waiting, message = 1 << 20, 1 << 16
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, waiting)
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}); err != nil {
		_ = unix.Close(s)
		return nil, fmt.Errorf("subscribe to nftables: %w", err)
	}
	return &nftEvents{s, make([]byte, message)}, nil
}

func (e *nftEvents) close() { _ = unix.Close(e.socket) }

// drain calls each with all events that wait, which it may keep no part of. Where it returns errLost, or another
// error, some were left out, and none that comes from now on is.
func (e *nftEvents) drain(each func(nftEvent)) error {
	lost := false
	for {
		n, from, err := unix.Recvfrom(e.socket, e.buffer, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN) && lost:
			return errLost
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.ENOBUFS):
			lost = true
			continue
		case err != nil:
			return fmt.Errorf("receive from nftables: %w", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != nl.PidKernel {
			continue
		}
		if n > len(e.buffer) {
			lost = true
			continue
		}
		messages, err := syscall.ParseNetlinkMessage(e.buffer[:n])
		if err != nil {
			lost = true
			continue
		}
		for _, m := range messages {
			if m.Header.Type>>8 == unix.NFNL_SUBSYS_NFTABLES && len(m.Data) >= nl.SizeofNfgenmsg {
				each(nftEvent{m.Header.Type & 0xff, m.Data[0], m.Data[nl.SizeofNfgenmsg:]})
			}
		}
	}
}

// wait until an event waits, or the time is over.
func (e *nftEvents) wait(d time.Duration) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(e.socket), Events: unix.POLLIN}}, int(d.Milliseconds()))
}

// keep makes a copy of an event that outlives the call.
func (e nftEvent) keep() nftEvent {
	e.message = bytes.Clone(e.message)
	return e
}
