// SPDX-License-Identifier: Apache-2.0

// Package probe is what the throwaway pods of the plugin's verify run: servers that say who they are, and clients that
// ask them in each of the ways that a pod can take. Server, client and plugin must agree on what is here.
package probe

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"
)

// Port that servers listen on, TCP and UDP.
const Port = 8460

// How much a check sends, in bytes, and has to get back. A datagram of the larger size travels in fragments, and the
// segments of such a connection fill packets of any MTU. More would be a benchmark: all clients of all members ask at
// the same time.
const (
	smallPayload  = 64
	largeDatagram = 8000
	largeStream   = 64 << 10
)

// Limits of what a line of a client's log may be: the pod runs in a member, which is not trusted.
const (
	// MaxLine is the length of the longest line.
	MaxLine = 4096
	// maxError is how much of an error a client reports.
	maxError = 400
)

// Check is one thing that a client asks a server.
type Check struct {
	// ID is the check's number, which its result has too.
	ID int `json:"id"`
	// Network is tcp4, tcp6, udp4 or udp6: a name is resolved to addresses of that family only.
	Network string `json:"network"`
	// Address of the server, as host:port.
	Address string `json:"address"`
	// Large sends much instead of little.
	Large bool `json:"large,omitempty"`
	// Server is who has to answer.
	Server string `json:"server"`
}

// ParseCheck reads a check as String writes it.
func ParseCheck(text string) (Check, error) {
	var c Check
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return c, fmt.Errorf("decode check %q: %w", text, err)
	}
	switch c.Network {
	case "tcp4", "tcp6", "udp4", "udp6":
	default:
		return c, fmt.Errorf("check %d: expected network tcp4, tcp6, udp4 or udp6, found %q", c.ID, c.Network)
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return c, fmt.Errorf("check %d: address: %w", c.ID, err)
	}
	return c, nil
}

// String writes a check as an argument of the client.
func (c Check) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return err.Error() // of strings, numbers and booleans there is none
	}
	return string(text)
}

func (c Check) stream() bool { return strings.HasPrefix(c.Network, "tcp") }

func (c Check) size() int {
	switch {
	case !c.Large:
		return smallPayload
	case c.stream():
		return largeStream
	}
	return largeDatagram
}

// Result is how a check ended; a client writes one per line.
type Result struct {
	ID int  `json:"id"`
	OK bool `json:"ok"`
	// Tries is how often it was tried, and Took how long the last try took.
	Tries int           `json:"tries"`
	Took  time.Duration `json:"tookNanoseconds"`
	// Error of the last try.
	Error string `json:"error,omitempty"`
}

// ParseResult reads a line of a client's log.
func ParseResult(line []byte) (Result, error) {
	var r Result
	if len(line) > MaxLine {
		return r, fmt.Errorf("expected a line of at most %d bytes, found %d", MaxLine, len(line))
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("decode result: %w", err)
	}
	return r, nil
}
