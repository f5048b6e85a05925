// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sealane-io/sealane/internal/clip"
)

// Stage at which a knock ended.
type Stage string

// The stages.
const (
	// Resolving: the name has no answer.
	Resolving Stage = "resolving"
	// Sending: nothing could be sent.
	Sending Stage = "sending"
	// Denied: the source's own kernel refused to send, as for a rule that drops what is sent.
	Denied Stage = "denied"
	// NoAnswer: nothing came back.
	NoAnswer Stage = "no answer"
	// Refused: a reset, or an ICMP error, came back.
	Refused Stage = "refused"
	// LargeLost: a connection was made, and packets of full size on it are not acknowledged.
	LargeLost Stage = "large lost"
	// Answered: all that was sent is acknowledged. Of UDP: something came back; programs may leave that out.
	Answered Stage = "answered"
)

func stages() []Stage {
	return []Stage{Resolving, Sending, Denied, NoAnswer, Refused, LargeLost, Answered}
}

// domain is the port of DNS, whose servers answer queries alone.
const domain = 53

// Mark is what datagrams to a port begin with, of a random number: for DNS it is the ID and the flags of a query.
func Mark(port uint16, random uint32) uint32 {
	if port == domain {
		return random &^ 0xffff
	}
	return random
}

const (
	// lookUpPatience, knockPatience and largePatience bound the steps of a knock: the second is longer than the kernel
	// takes to find out that nobody has an address.
	lookUpPatience = 3 * time.Second
	knockPatience  = 4 * time.Second
	largePatience  = 1500 * time.Millisecond
	// LongestKnock is how long one takes at most.
	LongestKnock = lookUpPatience + knockPatience + largePatience + time.Second
	// largeKnock is how much is sent on a connection: more than one packet of any MTU up to 8000.
	largeKnock = 8000
	// maxResolved is how many addresses are told.
	maxResolved = 16
)

// Knocked is how a knock ended.
type Knocked struct {
	Stage    Stage        `json:"stage"`
	Resolved []netip.Addr `json:"resolved,omitempty"`
	// To is where it was sent.
	To    netip.Addr    `json:"to"`
	Took  time.Duration `json:"tookNanoseconds"`
	Error string        `json:"error,omitempty"`
}

// ParseKnocked reads the line that a knock prints, which comes from a member.
func ParseKnocked(line []byte) (Knocked, error) {
	var k Knocked
	if len(line) > MaxLine {
		return k, fmt.Errorf("expected a line of at most %d bytes, found %d", MaxLine, len(line))
	}
	if err := json.Unmarshal(line, &k); err != nil {
		return Knocked{}, fmt.Errorf("decode the result of a probe: %w", err)
	}
	if !slices.Contains(stages(), k.Stage) || len(k.Resolved) > maxResolved {
		return Knocked{}, errors.New("expected the result of a probe, found something else")
	}
	k.To = k.To.WithZone("")
	for i := range k.Resolved {
		k.Resolved[i] = k.Resolved[i].WithZone("")
	}
	k.Error = clip.Text(clip.Line(k.Error), maxError)
	return k, nil
}
