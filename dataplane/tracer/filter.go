// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets, in bytes, within headers.
const (
	ipv4Length, ipv6Length = 20, 40
	ipv4Protocol           = 9
	ipv4Fragment           = 6
	ipv6Next               = 6
	icmpLength             = 8
	firstICMPv6Message     = 128 // lower ones are errors, RFC 4443 section 2.1
)

// filter passes packets of a protocol from or to a port, and ICMP errors that may be about such, of both families. It
// gets them from their IP headers on. Fragments after the first have no ports, and IPv6 with extension headers is not
// looked into.
func filter(protocol uint8, port uint16) ([]unix.SockFilter, error) {
	p := program{}
	p.add(bpf.LoadAbsolute{Off: 0, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4})
	p.jump(bpf.JumpEqual, 4, "", "not IPv4")
	// IPv4
	p.add(bpf.LoadAbsolute{Off: ipv4Fragment, Size: 2})
	p.jump(bpf.JumpBitsSet, 0x1fff, "drop", "")
	p.add(bpf.LoadMemShift{Off: 0}, bpf.LoadAbsolute{Off: ipv4Protocol, Size: 1})
	p.jump(bpf.JumpEqual, uint32(protocol), "", "not the protocol")
	p.add(bpf.LoadIndirect{Off: 0, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "")
	p.add(bpf.LoadIndirect{Off: 2, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "drop")
	p.label("not the protocol")
	p.jump(bpf.JumpEqual, unix.IPPROTO_ICMP, "", "drop")
	p.add(bpf.LoadIndirect{Off: icmpLength + ipv4Protocol, Size: 1})
	p.jump(bpf.JumpEqual, uint32(protocol), "", "drop")
	p.add(bpf.LoadIndirect{Off: icmpLength + ipv4Length, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "")
	p.add(bpf.LoadIndirect{Off: icmpLength + ipv4Length + 2, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "drop")
	p.label("not IPv4")
	p.jump(bpf.JumpEqual, 6, "", "drop")
	p.add(bpf.LoadAbsolute{Off: ipv6Next, Size: 1})
	p.jump(bpf.JumpEqual, uint32(protocol), "", "not the protocol in IPv6")
	p.add(bpf.LoadAbsolute{Off: ipv6Length, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "")
	p.add(bpf.LoadAbsolute{Off: ipv6Length + 2, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "drop")
	p.label("not the protocol in IPv6")
	p.jump(bpf.JumpEqual, unix.IPPROTO_ICMPV6, "", "drop")
	p.add(bpf.LoadAbsolute{Off: ipv6Length, Size: 1})
	p.jump(bpf.JumpGreaterOrEqual, firstICMPv6Message, "drop", "")
	p.add(bpf.LoadAbsolute{Off: ipv6Length + icmpLength + ipv6Next, Size: 1})
	p.jump(bpf.JumpEqual, uint32(protocol), "", "drop")
	p.add(bpf.LoadAbsolute{Off: 2*ipv6Length + icmpLength, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "")
	p.add(bpf.LoadAbsolute{Off: 2*ipv6Length + icmpLength + 2, Size: 2})
	p.jump(bpf.JumpEqual, uint32(port), "pass", "drop")
	p.label("pass")
	p.add(bpf.RetConstant{Val: snapLength})
	p.label("drop")
	p.add(bpf.RetConstant{Val: 0})
	return p.assemble()
}

// program is one with names for the places that it jumps to.
type program struct {
	instructions []bpf.Instruction
	jumps        map[int][2]string
	labels       map[string]int
}

func (p *program) add(i ...bpf.Instruction) { p.instructions = append(p.instructions, i...) }

// jump to one label if the test holds and to another if not; "" goes on.
func (p *program) jump(test bpf.JumpTest, value uint32, then, otherwise string) {
	if p.jumps == nil {
		p.jumps = map[int][2]string{}
	}
	p.jumps[len(p.instructions)] = [2]string{then, otherwise}
	p.add(bpf.JumpIf{Cond: test, Val: value})
}

func (p *program) label(name string) {
	if p.labels == nil {
		p.labels = map[string]int{"": 0}
	}
	p.labels[name] = len(p.instructions)
}

func (p *program) assemble() ([]unix.SockFilter, error) {
	for at, names := range p.jumps {
		var skip [2]uint8
		for i, name := range names {
			if name != "" {
				skip[i] = uint8(p.labels[name] - at - 1)
			}
		}
		j := p.instructions[at].(bpf.JumpIf) // jump has put it there
		j.SkipTrue, j.SkipFalse = skip[0], skip[1]
		p.instructions[at] = j
	}
	raw, err := bpf.Assemble(p.instructions)
	if err != nil {
		return nil, fmt.Errorf("assemble the packet filter: %w", err)
	}
	out := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		out[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return out, nil
}
