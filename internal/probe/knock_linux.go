// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/internal/clip"
)

// Knock is one connection, or a few datagrams, from a port that is told: what traces watch.
type Knock struct {
	// Network is tcp or udp.
	Network string
	// Host is a name, which the pod's own resolver is asked for, or an address.
	Host string
	Port uint16
	// From is the source port.
	From uint16
	// Mark is what datagrams begin with.
	Mark uint32
	// IPv6 takes addresses of that family; else those of IPv4 are.
	IPv6 bool
}

// Run knocks.
func (k Knock) Run(ctx context.Context) Knocked {
	began := time.Now()
	out := k.run(ctx)
	out.Took = time.Since(began)
	out.Error = clip.Text(out.Error, maxError)
	return out
}

func (k Knock) run(ctx context.Context) Knocked {
	var out Knocked
	to, err := netip.ParseAddr(k.Host)
	if err != nil {
		if out.Resolved, err = k.resolve(ctx); err != nil {
			out.Stage, out.Error = Resolving, err.Error()
			return out
		}
		to = out.Resolved[0]
	}
	out.To = to.Unmap()
	conn, err := k.dial(ctx, out.To)
	if err != nil {
		out.Stage, out.Error = stageOf(err), err.Error()
		return out
	}
	defer conn.Close() //nolint:errcheck // what was to be learned is learned
	if k.Network == "udp" {
		out.Stage, err = k.datagrams(conn)
	} else {
		out.Stage, err = k.large(ctx, conn)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// resolve asks the pod's own resolver, as its programs do.
func (k Knock) resolve(ctx context.Context) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpPatience)
	defer cancel()
	family := "ip4"
	if k.IPv6 {
		family = "ip6"
	}
	resolver := &net.Resolver{PreferGo: true}
	found, err := resolver.LookupNetIP(ctx, family, k.Host)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no address", k.Host)
	}
	found = found[:min(len(found), maxResolved)]
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, err
}

func (k Knock) dial(ctx context.Context, to netip.Addr) (net.Conn, error) {
	local, remote := net.Addr(&net.TCPAddr{Port: int(k.From)}), netip.AddrPortFrom(to, k.Port).String()
	if k.Network == "udp" {
		local = &net.UDPAddr{Port: int(k.From)}
	}
	d := net.Dialer{Timeout: knockPatience, LocalAddr: local, Control: reuse}
	d.SetMultipathTCP(false) // another protocol to those on the way
	return d.DialContext(ctx, k.Network, remote)
}

// reuse takes the port though a connection of it that has ended is remembered.
func reuse(_, _ string, raw syscall.RawConn) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}), err)
}

func stageOf(err error) Stage {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return Sending
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return Denied
	case errors.As(err, &timeout) && timeout.Timeout():
		return NoAnswer
	}
	return Refused
}

// large sends packets of full size, and waits for the kernel of the other end to acknowledge them. What they say is
// nothing: line feeds, which a server of HTTP ignores before a request.
func (k Knock) large(ctx context.Context, conn net.Conn) (Stage, error) {
	payload := make([]byte, largeKnock)
	for i := range payload {
		payload[i] = '\n'
	}
	if err := conn.SetDeadline(time.Now().Add(largePatience)); err != nil {
		return Answered, err
	}
	_, _ = conn.Write(payload)
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return Answered, err
	}
	const poll = 20 * time.Millisecond
	for end := time.Now().Add(largePatience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(poll) {
		var info *unix.TCPInfo
		var infoErr error
		err := raw.Control(func(fd uintptr) {
			info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		})
		if err = errors.Join(err, infoErr); err != nil {
			return Answered, err
		}
		// A server that does not want what it gets resets the connection: it has got it.
		if info.State != unix.BPF_TCP_ESTABLISHED && info.State != unix.BPF_TCP_CLOSE_WAIT || info.Bytes_acked > largeKnock {
			return Answered, nil
		}
		// A window that is shut is the program's matter, which does not read.
		if info.Unacked == 0 && info.Bytes_acked > 1 {
			return Answered, nil
		}
	}
	return LargeLost, errors.New("a connection was made, and what fills packets is not acknowledged on it")
}

// payload of a datagram, which begins with the mark. For DNS it is a query for the root's name servers, of that size by
// padding (RFC 7830), which every server answers, if only to refuse it.
func (k Knock) payload(size int) ([]byte, error) {
	if k.Port != domain {
		out := make([]byte, size)
		binary.BigEndian.PutUint32(out, k.Mark)
		return out, nil
	}
	const udpSize, padding = 1232, 12
	build := func(pad int) ([]byte, error) {
		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: uint16(k.Mark >> 16)})
		var h dnsmessage.ResourceHeader
		err := errors.Join(b.StartQuestions(), b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName("."),
			Type: dnsmessage.TypeNS, Class: dnsmessage.ClassINET}), b.StartAdditionals(),
			h.SetEDNS0(udpSize, dnsmessage.RCodeSuccess, false), b.OPTResource(h, dnsmessage.OPTResource{
				Options: []dnsmessage.Option{{Code: padding, Data: make([]byte, pad)}}}))
		if err != nil {
			return nil, err
		}
		return b.Finish()
	}
	least, err := build(0)
	if err != nil || len(least) >= size {
		return least, err
	}
	return build(size - len(least))
}

// datagrams sends a small one and a large one, and waits for anything to come back.
func (k Knock) datagrams(conn net.Conn) (Stage, error) {
	const small, large = 32, 1200
	if err := conn.SetReadDeadline(time.Now().Add(knockPatience)); err != nil {
		return Sending, err
	}
	for _, size := range []int{small, large} {
		payload, err := k.payload(size)
		if err != nil {
			return Sending, err
		}
		if _, err := conn.Write(payload); err != nil {
			return stageOf(err), err
		}
	}
	buffer := make([]byte, 1)
	switch _, err := conn.Read(buffer); {
	case err == nil, errors.Is(err, syscall.EMSGSIZE):
		return Answered, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return NoAnswer, err
	default:
		return Refused, err
	}
}
