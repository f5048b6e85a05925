// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/internal/clip"
)

// pictureStyle draws a state by the kind of line as well as by its colour.
const pictureStyle = `
svg { background: #ffffff; font-family: system-ui, sans-serif; font-size: 13px; }
text { fill: #1f2430; text-anchor: middle; }
.title { font-size: 18px; text-anchor: start; }
.small { font-size: 11px; fill: #4b5263; }
.left { text-anchor: start; }
.right { text-anchor: end; }
.box { fill: #f4f6fa; stroke: #4b5263; stroke-width: 1.5; }
.tag { fill: #ffffff; stroke: #c3c9d6; }
.grid { fill: #ffffff; stroke: #c3c9d6; }
.apart { fill: #cdd3df; }
.rule { fill: none; stroke: #dde2ec; }
line, .swatch { fill: none; stroke-width: 2.5; }
.connected { stroke: #1a7f4b; }
.thin { stroke-width: 1; }
.impaired { stroke: #9a6700; stroke-dasharray: 12 4; }
.connecting { stroke: #2f6fd0; stroke-dasharray: 6 4; }
.down { stroke: #c62f2f; stroke-dasharray: 2 5; stroke-width: 4; }
.unknown { stroke: #6b7280; stroke-dasharray: 1 6; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171f; }
  text { fill: #e7eaf2; }
  .small { fill: #aab2c5; }
  .box { fill: #1f2430; stroke: #aab2c5; }
  .grid { fill: #14171f; }
  .apart { fill: #3b4252; }
  .grid, .rule { stroke: #3b4252; }
  .tag { fill: #14171f; stroke: #3b4252; }
  .connected { stroke: #4ccb8b; }
  .impaired { stroke: #e3b341; }
  .connecting { stroke: #79a8f5; }
  .down { stroke: #ff7b72; }
  .unknown { stroke: #9aa3b5; }
}
`

// picture is an SVG document that is written.
type picture struct{ bytes.Buffer }

// SVG draws the Map for documents: a graph, or for many clusters a matrix. It holds no script and loads nothing.
func (m Map) SVG() []byte {
	m = m.Bounded()
	p := &picture{}
	graph := len(m.Clusters) <= MaxGraph
	width, height := Width, Height+100
	if !graph {
		width = gridLeft + cell*len(m.Clusters) + 40
		height = gridTop + cell*len(m.Clusters) + 60
	}
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" `+
		`aria-labelledby="title summary">`, width, height, width, height)
	p.put(`<title id="title">%s</title>`, escaped("Map of the clusters"))
	p.put(`<desc id="summary">%s</desc>`, escaped(m.Summary()))
	p.put(`<style>%s</style>`, pictureStyle)
	p.put(`<text class="title" x="24" y="34">%s</text>`, escaped(m.Summary()))
	note := "as of " + m.Taken
	if !graph {
		note += "; a white cell is a connected pair, a grey one of clusters that are not to be connected"
	}
	p.put(`<text class="small left" x="24" y="54">%s</text>`, escaped(note))
	if graph {
		p.put(`<g transform="translate(0 50)">`)
		p.edges(&m)
		for i := range m.Clusters {
			p.cluster(&m.Clusters[i])
		}
		p.put(`</g>`)
	} else {
		p.matrix(&m)
	}
	p.legend(height - 24)
	p.put(`</svg>`)
	return p.Bytes()
}

// put writes a line. Texts among the arguments are escaped by the caller.
func (p *picture) put(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// escaped is text within an element or an attribute.
func escaped(s string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(s)) // a Builder takes everything
	return out.String()
}

// short is a name as long as a box is wide.
func short(s string) string { return clip.Text(s, 24) }

// Summary says in one line how the network is.
func (m *Map) Summary() string {
	up := 0
	for i := range m.Edges {
		if m.Edges[i].State == Connected || m.Edges[i].State == Impaired {
			up++
		}
	}
	return fmt.Sprintf("%s, %d of %s connected, %s, %s", count(len(m.Clusters)+m.Left.Clusters, "cluster"), up,
		count(len(m.Edges), "pair"), count(len(m.Services)+m.Left.Services, "service"),
		count(len(m.Problems)+m.Left.Problems, "problem"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Label is what is written beside an edge.
func (e *Edge) Label() string {
	if e.State == Connected || e.State == Impaired {
		text := e.State.Symbol()
		if e.RTT != nil {
			text += fmt.Sprintf(" %.1f ms", float64(*e.RTT)/1000)
		}
		if e.Loss != nil && *e.Loss > 0 {
			text += fmt.Sprintf(", %d %% lost", *e.Loss)
		}
		return text
	}
	return e.State.Symbol() + " " + string(e.State)
}

// edges are drawn below the boxes of clusters, and their labels above all lines.
func (p *picture) edges(m *Map) {
	at := map[string]*Cluster{}
	for i := range m.Clusters {
		at[m.Clusters[i].Name] = &m.Clusters[i]
	}
	lines := slices.Clone(m.Edges)
	slices.SortStableFunc(lines, func(a, b Edge) int { // the worst above all others
		return cmp.Compare(slices.Index(States(), a.State), slices.Index(States(), b.State))
	})
	for i := range lines {
		e := &lines[i]
		a, b := at[e.A], at[e.B]
		class := string(e.State)
		if len(m.Clusters) > MaxLabelled && e.State == Connected {
			class += " thin"
		}
		p.put(`<line class="%s" x1="%d" y1="%d" x2="%d" y2="%d"><title>%s</title></line>`, class, a.X, a.Y, b.X, b.Y,
			escaped(e.A+" and "+e.B+": "+string(e.State)))
	}
	for i := range m.Edges {
		e := &m.Edges[i]
		if len(m.Clusters) > MaxLabelled && e.State == Connected {
			continue
		}
		a, b := at[e.A], at[e.B]
		x, y := (a.X+b.X)/2, (a.Y+b.Y)/2
		if len(m.Clusters) > MaxLabelled {
			x, y = (2*a.X+b.X)/3, (2*a.Y+b.Y)/3
		}
		label := e.Label()
		half := 4*len([]rune(label)) + 6
		p.put(`<rect class="tag" x="%d" y="%d" width="%d" height="22" rx="11"/>`, x-half, y-11, 2*half)
		p.put(`<text x="%d" y="%d">%s</text>`, x, y+4, escaped(label))
	}
}

// MaxLabelled is up to how many clusters each edge of a graph has a label. With more, those of connected pairs would
// cover each other: only the others have one.
const MaxLabelled = 6

// cluster is a box with the name, the verdict and the first gateways.
func (p *picture) cluster(c *Cluster) {
	const half, most = 95, 3
	lines := []string{count(len(c.Gateways), "gateway")}
	for i := range c.Gateways {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(c.Gateways)-most))
			break
		}
		lines = append(lines, short(c.Gateways[i].Name)+" "+clip.Text(c.Gateways[i].HA, 10))
	}
	if c.Unasked != "" {
		lines = []string{"could not be asked"}
	}
	height := 34 + 16*len(lines)
	top := c.Y - height/2
	p.put(`<g><title>%s</title>`, escaped(c.Name+": "+c.Verdict))
	p.put(`<rect class="box" x="%d" y="%d" width="%d" height="%d" rx="8"/>`, c.X-half, top, 2*half, height)
	p.put(`<text x="%d" y="%d">%s</text>`, c.X, top+22, escaped(symbolOf(c.Verdict)+" "+short(c.Name)))
	for i, line := range lines {
		p.put(`<text class="small" x="%d" y="%d">%s</text>`, c.X, top+40+16*i, escaped(line))
	}
	p.put(`</g>`)
}

// symbolOf a verdict.
func symbolOf(verdict string) string {
	switch verdict {
	case OK:
		return Connected.Symbol()
	case Warn:
		return Impaired.Symbol()
	}
	return Down.Symbol()
}

// The measures of a matrix.
const (
	cell     = 16
	gridLeft = 190
	gridTop  = 190
)

// matrix has a row and a column for each cluster, and a mark where two are not connected.
func (p *picture) matrix(m *Map) {
	n, at := len(m.Clusters), map[string]int{}
	p.put(`<rect class="grid" x="%d" y="%d" width="%d" height="%d"/>`, gridLeft, gridTop, cell*n, cell*n)
	for i := range m.Clusters {
		at[m.Clusters[i].Name] = i
		middle, line := cell*i+cell/2, cell*i
		p.put(`<path class="rule" d="M%d %dh%dM%d %dv%d"/>`, gridLeft, gridTop+line, cell*n, gridLeft+line, gridTop, cell*n)
		label := escaped(short(m.Clusters[i].Name))
		p.put(`<text class="small right" x="%d" y="%d">%s</text>`, gridLeft-6, gridTop+middle+4, label)
		p.put(`<text class="small left" transform="translate(%d %d) rotate(-90)">%s</text>`, gridLeft+middle+4, gridTop-6,
			label)
	}
	pairs := map[[2]int]*Edge{}
	for i := range m.Edges {
		a, b := at[m.Edges[i].A], at[m.Edges[i].B]
		pairs[[2]int{a, b}], pairs[[2]int{b, a}] = &m.Edges[i], &m.Edges[i]
	}
	for i := range n {
		for j := range n {
			x, y := gridLeft+cell*i, gridTop+cell*j
			e := pairs[[2]int{i, j}]
			switch {
			case e == nil:
				p.put(`<rect class="apart" x="%d" y="%d" width="%d" height="%d"/>`, x, y, cell, cell)
				continue
			case e.State == Connected:
				continue
			}
			p.put(`<g><title>%s</title><rect class="swatch %s" x="%d" y="%d" width="%d" height="%d"/>`+
				`<text class="small" x="%d" y="%d">%s</text></g>`, escaped(e.A+" and "+e.B+": "+string(e.State)), e.State,
				x+1, y+1, cell-2, cell-2, x+cell/2, y+cell/2+4, e.State.Symbol())
		}
	}
}

// legend says what the lines mean.
func (p *picture) legend(y int) {
	for i, s := range slices.All(States()) {
		x := 24 + 150*i
		p.put(`<line class="%s" x1="%d" y1="%d" x2="%d" y2="%d"/>`, s, x, y, x+34, y)
		p.put(`<text class="left" x="%d" y="%d">%s %s</text>`, x+42, y+5, s.Symbol(), s)
	}
}
