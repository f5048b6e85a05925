// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/internal/clip"
)

// Verdict on one step.
type Verdict string

// The verdicts.
const (
	// OK: the packet passes.
	OK Verdict = "ok"
	// Warn: it passes as far as objects tell, and this is worth knowing.
	Warn Verdict = "warn"
	// Fail: it is lost here.
	Fail Verdict = "fail"
)

// Names of the steps of a packet's way.
const (
	stepSource    = "source"
	stepAnswer    = "answer"
	stepChoice    = "choice"
	stepService   = "service"
	stepRoute     = "route"
	stepNode      = "node"
	stepOverlay   = "overlay"
	stepCable     = "cable"
	stepMTU       = "mtu"
	stepGuard     = "guard"
	stepRelay     = "relay"
	stepNAT       = "nat"
	stepDelivery  = "delivery"
	stepWayBack   = "way back"
	stepHandOver  = "hand over"
	stepTarget    = "destination"
	stepReachable = "reachable"
)

// Step of a packet's way.
type Step struct {
	// At says where it is: a cluster, or cluster/node.
	At string `json:"at"`
	// Step by its name, such as "route".
	Name    string  `json:"step"`
	Verdict Verdict `json:"verdict"`
	// Found is what happens; Expected and Remedy are set where that is not as it should be.
	Found    string `json:"found"`
	Expected string `json:"expected,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

// Arrival says whether packets arrive.
type Arrival string

// The outcomes.
const (
	Arrives Arrival = "yes"
	// Sometimes: of several backends that connections are spread over, or of several gateways, some are not reached.
	Sometimes Arrival = "sometimes"
	Lost      Arrival = "no"
	// Unknown: a cluster on the way could not be asked.
	Unknown Arrival = "unknown"
)

// Explanation of a packet's way.
type Explanation struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Arrives says whether a packet gets there and its answer back.
	Arrives Arrival `json:"arrives"`
	Steps   []Step  `json:"steps"`
	// Live is what a packet met that was sent; nil if none was.
	Live *Live `json:"live,omitempty"`
}

// lost returns the first step at which a packet is lost, nil if it is not.
func (e *Explanation) lost() *Step {
	if i := slices.IndexFunc(e.Steps, func(s Step) bool { return s.Verdict == Fail }); i >= 0 {
		return &e.Steps[i]
	}
	return nil
}

// Err says where packets are lost; nil where they arrive.
func (e *Explanation) Err() error {
	if e.Arrives == Arrives {
		return nil
	}
	where := ""
	if s := e.lost(); s != nil {
		where = ": lost at " + s.Name
		if s.At != "" {
			where += " of " + s.At
		}
	}
	switch e.Arrives {
	case Sometimes:
		return fmt.Errorf("from %s to %s some connections fail%s", e.From, e.To, where)
	case Unknown:
		return fmt.Errorf("from %s to %s: whether packets arrive is not known%s", e.From, e.To,
			strings.Replace(where, "lost", "the trail is lost", 1))
	}
	return fmt.Errorf("from %s to %s no packet arrives%s", e.From, e.To, where)
}

// Print writes a numbered line for each step, and under what is not ok what was expected and what to do. Texts come
// from members, too: what is no text is left out.
func (e *Explanation) Print(out io.Writer) {
	at, name := 0, 0
	for i := range e.Steps {
		at, name = max(at, len(e.Steps[i].At)), max(name, len(e.Steps[i].Name))
	}
	for i := range e.Steps {
		s := &e.Steps[i]
		title := fmt.Sprintf("%3d. %-4s  %-*s  %-*s  ", i+1, s.Verdict, at, s.At, name, s.Name)
		indent := strings.Repeat(" ", len(title))
		lines := strings.Split(strings.TrimSpace(s.Found), "\n")
		fmt.Fprintln(out, strings.TrimRight(title+clip.Line(lines[0]), " "))
		for _, line := range lines[1:] {
			fmt.Fprintln(out, indent+clip.Line(line))
		}
		for _, part := range []struct{ title, text string }{{"expected: ", s.Expected}, {"to do:    ", s.Remedy}} {
			title := part.title
			for line := range strings.Lines(part.text) {
				fmt.Fprintf(out, "%s%s%s\n", indent, title, clip.Line(strings.TrimRight(line, "\n")))
				title = strings.Repeat(" ", len(part.title))
			}
		}
	}
	if l := e.Live; l != nil && l.Lost != "" && l.LastSeen != "" {
		fmt.Fprintf(out, "last seen: %s\n", clip.Line(l.LastSeen))
	}
	fmt.Fprintf(out, "arrives: %s\n", e.Arrives)
}
