// SPDX-License-Identifier: Apache-2.0

// Package trace is what a node agent's `trace` prints and the plugin's `explain --live` reads: where the packets of one
// flow were seen on a node. It is pure. The node is not trusted: Parse bounds and checks each line.
package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/sealane-io/sealane/internal/clip"
)

// Limits of a trace.
const (
	// MaxDuration is how long a trace listens at most.
	MaxDuration = 30 * time.Second
	// MaxAtOnce is how many run on a node at a time.
	MaxAtOnce = 4
	// MaxLines is how many lines a trace prints at most: each tells of packets that look different from those before.
	MaxLines = 400
	// MaxLine is the length of the longest, in bytes.
	MaxLine = 2048
	// MaxLookUps is how many addresses it can be told to look up the way to.
	MaxLookUps = 8
	// LargeSize is from how many bytes, with the IP header, a packet is Large.
	LargeSize = 1000
	// MinPort is the least source port that can be watched: below are those that programs get by themselves on most
	// systems, and services.
	MinPort = 61000
	maxText = 512
	maxDev  = 15 // IFNAMSIZ
)

// Kind of a packet.
type Kind string

// The kinds.
const (
	SYN    Kind = "syn"
	SYNACK Kind = "synack"
	RST    Kind = "rst"
	// TCP is any other segment.
	TCP Kind = "tcp"
	UDP Kind = "udp"
)

func kinds() []Kind { return []Kind{SYN, SYNACK, RST, TCP, UDP} }

// Line that a trace prints: exactly one field is set.
type Line struct {
	// Listening says that from now on no packet is missed.
	Listening bool     `json:"listening,omitempty"`
	Seen      *Seen    `json:"seen,omitempty"`
	Dropped   *Dropped `json:"dropped,omitempty"`
	Refused   *Refused `json:"refused,omitempty"`
	LookedUp  *Route   `json:"route,omitempty"`
	Missed    *Missed  `json:"missed,omitempty"`
	// Ended is the last line of a trace that was not cut off.
	Ended bool `json:"ended,omitempty"`
}

// Missed says that a trace does not tell all that there was.
type Missed struct {
	What Lacking `json:"what"`
	Why  string  `json:"why"`
}

// Lacking is what a trace does not tell all of.
type Lacking string

// What may lack.
const (
	// Packets: one that is not told of may have been there.
	Packets Lacking = "packets"
	// Rules: one that is not told of may have dropped a packet.
	Rules Lacking = "rules"
)

// Packet of the flow. An answer is one to the watched port, a request one from it.
type Packet struct {
	Kind Kind           `json:"kind"`
	From netip.AddrPort `json:"from"`
	To   netip.AddrPort `json:"to"`
	// Size in bytes, with the IP header.
	Size int `json:"size"`
	// Flow is the initial sequence number of the TCP connection that a SYN begins, and a SYN+ACK or RST answers: no
	// translation changes it. Of UDP it is the start of the payload of a request.
	Flow uint32 `json:"flow,omitempty"`
}

// Large says that the packet is of the larger size that is probed with.
func (p *Packet) Large() bool { return p.Size >= LargeSize }

// Seen is a packet on a device.
type Seen struct {
	Packet
	Device string `json:"device"`
	// Out says that the node sends it there; else it comes in.
	Out bool `json:"out,omitempty"`
}

// Dropped is a packet that a rule of nftables, or the policy of a chain, has dropped.
type Dropped struct {
	Packet
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	// Rule as nft prints it, or where it cannot be shown its handle; "" for the policy of the chain.
	Rule string `json:"rule,omitempty"`
}

// Refused is an ICMP error about a packet.
type Refused struct {
	Packet
	Device string     `json:"device"`
	Out    bool       `json:"out,omitempty"`
	By     netip.Addr `json:"by"`
	Why    string     `json:"why"`
}

// Reasons of ICMP errors by which packets are judged.
const (
	// PortUnreachable: nothing listens there, or a rule says so.
	PortUnreachable = "port unreachable"
	// TimeExceeded: it was sent on too often.
	TimeExceeded = "time exceeded"
)

// Route is where the node would send a packet that came in and did not go out.
type Route struct {
	From netip.Addr `json:"from"`
	To   netip.Addr `json:"to"`
	// By is the device that it came in by.
	By string `json:"by,omitempty"`
	// Device that it goes out by; "" if there is none.
	Device string `json:"device,omitempty"`
	// Problem says why it does not go: the kernel's error, or that the next hop does not answer.
	Problem string `json:"problem,omitempty"`
}

// unknown stands for a name that cannot be one.
const unknown = "?"

// name of a table, a chain, a family or a device: what people are told to type has such in it.
var name = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$`)

// Parse reads a line of a trace of a port. Texts are cut, and hold nothing that is not printable; names and addresses
// hold nothing that a shell would take for more than a word.
func Parse(line []byte, port uint16) (Line, error) {
	var l Line
	if len(line) > MaxLine {
		return l, fmt.Errorf("expected a line of at most %d bytes, found %d", MaxLine, len(line))
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return Line{}, fmt.Errorf("decode a line of a trace: %w", err)
	}
	set := 0
	var texts, names []*string
	var packets []*Packet
	if l.Listening {
		set++
	}
	if l.Ended {
		set++
	}
	if m := l.Missed; m != nil {
		set++
		texts = append(texts, &m.Why)
		if m.What != Packets && m.What != Rules {
			return Line{}, errors.New("expected packets or rules to be missed, found something else")
		}
	}
	if s := l.Seen; s != nil {
		set++
		names, packets = append(names, &s.Device), append(packets, &s.Packet)
	}
	if d := l.Dropped; d != nil {
		set++
		texts, packets = append(texts, &d.Rule), append(packets, &d.Packet)
		names = append(names, &d.Family, &d.Table, &d.Chain)
	}
	if r := l.Refused; r != nil {
		set++
		texts, packets = append(texts, &r.Why), append(packets, &r.Packet)
		names = append(names, &r.Device)
		r.By = r.By.WithZone("")
	}
	if r := l.LookedUp; r != nil {
		set++
		texts, names = append(texts, &r.Problem), append(names, &r.By, &r.Device)
		r.From, r.To = r.From.WithZone(""), r.To.WithZone("")
	}
	if set != 1 {
		return Line{}, fmt.Errorf("expected a line of a trace to tell one thing, found %d", set)
	}
	for _, p := range packets {
		if !p.valid(port) {
			return Line{}, errors.New("expected a packet of the flow, found another")
		}
	}
	for _, t := range texts {
		*t = clip.Text(clip.Line(*t), maxText)
	}
	for _, n := range names {
		if *n != "" && !name.MatchString(*n) {
			*n = unknown
		}
	}
	if l.Seen != nil && (l.Seen.Device == "" || len(l.Seen.Device) > maxDev) {
		return Line{}, errors.New("expected a packet on a device, found none")
	}
	return l, nil
}

func (p *Packet) valid(port uint16) bool {
	return slices.Contains(kinds(), p.Kind) && p.From.IsValid() && p.To.IsValid() &&
		p.From.Addr().Zone() == "" && p.To.Addr().Zone() == "" &&
		(p.From.Port() == port) != (p.To.Port() == port) && p.Size >= 0 && p.Size <= 1<<16
}

// Answer says whether a packet goes to the watched port.
func (p *Packet) Answer(port uint16) bool { return p.To.Port() == port }
