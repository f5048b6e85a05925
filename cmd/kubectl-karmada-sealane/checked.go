// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/internal/clip"
)

// verdict on a check; the later in this list, the worse.
type verdict string

const (
	verdictOK   verdict = "ok"
	verdictWarn verdict = "warn"
	verdictFail verdict = "fail"
)

func (v verdict) rank() int { return slices.Index([]verdict{verdictOK, verdictWarn, verdictFail}, v) }

// checked is one thing that was looked at, in one cluster or, where Cluster is empty, on the Karmada API.
type checked struct {
	Cluster string  `json:"cluster,omitempty"`
	Name    string  `json:"check"`
	Verdict verdict `json:"verdict"`
	// Found in any case; Expected and Remedy where it is not ok.
	Found    string `json:"found"`
	Expected string `json:"expected,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

func passed(name, format string, args ...any) checked {
	return checked{Name: name, Verdict: verdictOK, Found: fmt.Sprintf(format, args...)}
}

// clusterVerdict is the worst of all checks of one cluster.
type clusterVerdict struct {
	Cluster string    `json:"cluster,omitempty"`
	Verdict verdict   `json:"verdict"`
	Checks  []checked `json:"checks"`
}

// byCluster puts checks together, clusters in the order in which they come first.
func byCluster(checks []checked) []clusterVerdict {
	out := []clusterVerdict{}
	for _, c := range checks {
		i := slices.IndexFunc(out, func(v clusterVerdict) bool { return v.Cluster == c.Cluster })
		if i < 0 {
			i = len(out)
			out = append(out, clusterVerdict{Cluster: c.Cluster, Verdict: verdictOK})
		}
		out[i].Checks = append(out[i].Checks, c)
		if c.Verdict.rank() > out[i].Verdict.rank() {
			out[i].Verdict = c.Verdict
		}
	}
	return out
}

// report prints checks under the verdict on their cluster, and fails if one failed.
func report(out io.Writer, format, subject string, checks []checked) error {
	verdicts := byCluster(checks)
	if format == outputJSON || format == outputYAML {
		if err := write(out, format, table{subject: subject, rows: verdicts}); err != nil {
			return err
		}
	} else {
		for _, v := range verdicts {
			fmt.Fprintf(out, "%s: %s\n", cmp.Or(v.Cluster, "Karmada API"), v.Verdict)
			for i := range v.Checks {
				v.Checks[i].print(out)
			}
		}
	}
	var failed []string
	for _, c := range checks {
		if c.Verdict == verdictFail {
			failed = append(failed, c.Name+" of "+cmp.Or(c.Cluster, "the Karmada API"))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%s: %d failed: %s", subject, len(failed), clip.List(failed, 10))
	}
	return nil
}

// print writes a line, and under what is not ok what was expected and what to do. Texts come from members, too: what is
// no text is left out.
func (c *checked) print(out io.Writer) {
	fmt.Fprintf(out, "  %-4s  %-12s  %s\n", c.Verdict, c.Name, clip.Line(oneLine(strings.TrimSpace(c.Found))))
	if c.Verdict == verdictOK {
		return
	}
	fmt.Fprintf(out, "          expected: %s\n          to do:    %s\n", clip.Line(c.Expected), clip.Line(c.Remedy))
}
