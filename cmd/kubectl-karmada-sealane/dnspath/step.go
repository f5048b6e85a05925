// SPDX-License-Identifier: Apache-2.0

package dnspath

import (
	"fmt"
	"io"
	"strings"

	"github.com/sealane-io/sealane/internal/clip"
)

// Verdict on one step of the path.
type Verdict string

// The verdicts.
const (
	// OK: the step holds.
	OK Verdict = "ok"
	// Note: the name works, and this is worth knowing.
	Note Verdict = "note"
	// Broken: the path ends here.
	Broken Verdict = "BROKEN"
)

// Names of the steps, in their order.
const (
	stepName          = "name"
	stepMember        = "member"
	stepAgent         = "agent"
	stepCorefile      = "corefile"
	stepClusterDNS    = "cluster-dns"
	stepSealaneDNS    = "sealane-dns"
	stepExport        = "export"
	stepBundle        = "bundle"
	stepNamespace     = "namespace"
	stepServiceImport = "serviceimport"
	stepService       = "service"
	stepTunnel        = "tunnel"
	stepNodes         = "nodes"
	stepEndpoints     = "endpoints"
	// LookUp is the last step: what the cluster's own DNS answers.
	LookUp = "look-up"
)

// Step of the path.
type Step struct {
	Name    string  `json:"step"`
	Verdict Verdict `json:"verdict"`
	// Found in any case; Expected and Remedy where it is not as it should be.
	Found    string `json:"found"`
	Expected string `json:"expected,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

func ok(name, format string, args ...any) Step {
	return Step{Name: name, Verdict: OK, Found: fmt.Sprintf(format, args...)}
}

func note(name, format string, args ...any) Step {
	return Step{Name: name, Verdict: Note, Found: fmt.Sprintf(format, args...)}
}

func broken(name, expected, found, remedy string) Step {
	return Step{Name: name, Verdict: Broken, Expected: expected, Found: found, Remedy: remedy}
}

// Whole says that no step is broken.
func Whole(steps []Step) bool {
	for _, s := range steps {
		if s.Verdict == Broken {
			return false
		}
	}
	return true
}

// Marks are what stands before a step of each verdict.
type Marks map[Verdict]string

// Print writes one line per step, and what to do under one that is broken. Texts come from members, too:
// what is no text is left out.
func Print(out io.Writer, steps []Step, marks Marks) {
	const indent = "          "
	for _, s := range steps {
		mark := marks[s.Verdict]
		if mark == "" {
			mark = fmt.Sprintf("%-6s", s.Verdict)
		}
		if s.Verdict != Broken {
			fmt.Fprintf(out, "%s  %-13s  %s\n", mark, s.Name, clip.Line(s.Found))
			continue
		}
		fmt.Fprintf(out, "%s  %s\n", mark, s.Name)
		for _, part := range []struct{ title, text string }{
			{"expected", s.Expected}, {"found", s.Found}, {"to do", s.Remedy},
		} {
			title := part.title + ":"
			for line := range strings.Lines(part.text) {
				fmt.Fprintf(out, "%s%-9s %s\n", indent, title, clip.Line(strings.TrimRight(line, "\n")))
				title = ""
			}
		}
	}
}

// maxListed is how many items a text lists.
const maxListed = 10

func shorten(items []string) string { return clip.List(items, maxListed) }

func dashed(ip string) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(ip)
}
