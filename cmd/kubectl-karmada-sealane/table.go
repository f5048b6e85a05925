// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Output formats.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// Columns of ages. That one grows is no change of its row.
const (
	columnLastChange = "LAST-CHANGE"
	columnSince      = "SINCE"
)

func checkOutput(format string) error {
	switch format {
	case outputTable, outputWide, outputJSON, outputYAML:
		return nil
	}
	return &finding{expected: "-o to be table, wide, json or yaml", found: fmt.Sprintf("%q", format),
		remedy: "choose one of them"}
}

// table is one subject of show: rows, and how their cells are headed.
type table struct {
	// subject is the key in JSON and the title among several tables.
	subject string
	// within is what the rows are narrowed to, for a table without any: " in namespace x".
	within string
	// columns of the rows' cells; those from narrow on are shown with -o wide only.
	columns []string
	narrow  int
	cells   [][]string
	// rows is the slice that JSON and YAML print.
	rows any
}

// row is what a table shows.
type row interface{ cells() []string }

func newTable[R row](subject string, rows []R, narrow int, columns ...string) table {
	if rows == nil {
		rows = []R{}
	}
	t := table{subject: subject, columns: columns, narrow: narrow, rows: rows}
	for _, r := range rows {
		t.cells = append(t.cells, r.cells())
	}
	return t
}

// write prints tables, each under its title if there are several.
func write(out io.Writer, format string, tables ...table) error {
	if format == outputJSON || format == outputYAML {
		return writeStructured(out, format, tables)
	}
	for i, t := range tables {
		if len(tables) > 1 {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "%s\n", strings.ToUpper(t.subject[:1])+t.subject[1:])
		}
		if err := t.write(out, format == outputWide); err != nil {
			return err
		}
	}
	return nil
}

func (t table) write(out io.Writer, wide bool) error {
	if len(t.cells) == 0 {
		_, err := fmt.Fprintf(out, "no %s%s\n", t.subject, t.within)
		return err
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.columns[:t.width(wide)], "\t"))
	for _, cells := range t.cells {
		fmt.Fprintln(w, strings.Join(t.shown(cells, wide), "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// width is how many columns are shown.
func (t table) width(wide bool) int {
	if wide {
		return len(t.columns)
	}
	return t.narrow
}

// shown are the cells of a row as they are printed.
func (t table) shown(cells []string, wide bool) []string {
	shown := make([]string, t.width(wide))
	for i := range shown {
		if shown[i] = oneLine(cells[i]); shown[i] == "" {
			shown[i] = "-"
		}
	}
	return shown
}

// oneLine keeps a cell in its row, and a member from writing to the terminal what is not text.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

func writeStructured(out io.Writer, format string, tables []table) error {
	document := map[string]any{}
	for _, t := range tables {
		document[t.subject] = t.rows
	}
	content, err := json.MarshalIndent(document, "", "  ")
	if err == nil && format == outputYAML {
		content, err = yaml.JSONToYAML(content)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = fmt.Fprintln(out, strings.TrimRight(string(content), "\n"))
	return err
}
