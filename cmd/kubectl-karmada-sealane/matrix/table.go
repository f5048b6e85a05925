// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// Columns are the heads of the table's cells.
func Columns() []string {
	columns := []string{"FROM", "TO", "FAMILY"}
	for _, t := range Targets() {
		columns = append(columns, strings.ToUpper(string(t)))
	}
	return columns
}

// lane is a row of the table: from one place to another, in one family.
type lane struct {
	from, to Place
	family   Family
}

// Cells of the table: a row for each client, server and family, and in it a cell for each target: ok, how many of its
// checks are done, or what of it fails.
func (m Matrix) Cells() [][]string {
	var order []lane
	checks := map[lane]map[Target][]*Check{}
	for i := range m.Checks {
		c := &m.Checks[i]
		l := lane{c.From, c.To, c.Family}
		if checks[l] == nil {
			order, checks[l] = append(order, l), map[Target][]*Check{}
		}
		checks[l][c.Target] = append(checks[l][c.Target], c)
	}
	rows := make([][]string, len(order))
	for i, l := range order {
		rows[i] = []string{l.from.String(), l.to.String(), string(l.family)}
		for _, t := range Targets() {
			rows[i] = append(rows[i], cell(checks[l][t]))
		}
	}
	return rows
}

func cell(checks []*Check) string {
	var failed []string
	settled, skipped := 0, 0
	for _, c := range checks {
		switch c.Verdict {
		case Failed:
			failed = append(failed, c.way())
			settled++
		case Skipped:
			skipped++
		case OK:
			settled++
		case Pending:
		}
	}
	switch all := len(checks) - skipped; {
	case all == 0:
		return "-"
	case len(failed) == all:
		return "FAIL"
	case len(failed) > 0:
		return "FAIL " + strings.Join(failed, ",")
	case settled == all:
		return "ok"
	default:
		return fmt.Sprintf("%d/%d", settled, all)
	}
}

// Reasons are why checks failed: those that failed from one place to another for the same reason are in one line.
func (m Matrix) Reasons() []string {
	type cause struct {
		from, to Place
		reason   string
	}
	var order []cause
	ways := map[cause][]string{}
	for i := range m.Checks {
		c := &m.Checks[i]
		if c.Verdict != Failed {
			continue
		}
		key := cause{c.From, c.To, c.Reason}
		if ways[key] == nil {
			order = append(order, key)
		}
		ways[key] = append(ways[key], fmt.Sprintf("%s %s %s", c.Target, c.way(), c.Family))
	}
	out := make([]string, len(order))
	for i, key := range order {
		list := slices.Compact(ways[key])
		what := strings.Join(list, "; ")
		if len(list) > 4 {
			what = fmt.Sprintf("%s; and %d more", strings.Join(list[:3], "; "), len(list)-3)
		}
		out[i] = fmt.Sprintf("%s → %s: %s: %s", key.from, key.to, what, key.reason)
	}
	return out
}
