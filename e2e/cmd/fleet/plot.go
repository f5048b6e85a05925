// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
)

// point is what a fleet of so many clusters was found to cost.
type point struct{ clusters, value float64 }

// line of one kind of cost, by size.
type line struct {
	name   string
	points []point
}

// panel shows lines that have one unit.
type panel struct {
	title string
	lines []line
}

// panelsOf are the costs that the picture shows.
func panelsOf(tables []table) []panel {
	by := func(name string, value func(t *table) (float64, bool)) line {
		l := line{name: name}
		for i := range tables {
			if v, ok := value(&tables[i]); ok {
				l.points = append(l.points, point{float64(tables[i].Size.Clusters), v})
			}
		}
		return l
	}
	latency := func(name, scenario string, q float64) line {
		return by(name, func(t *table) (float64, bool) {
			r := t.row(scenario)
			return ms(quantileOf(t, scenario, q)), r != nil && len(r.Arrived) > 0
		})
	}
	of := func(name, scenario string, value func(t *table) float64) line {
		return by(name, func(t *table) (float64, bool) {
			if t.row(scenario) == nil {
				return 0, false
			}
			return value(t), true
		})
	}
	return []panel{
		{"a pod is replaced: until the others' Works, ms", []line{latency("p50", onePod, 0.5), latency("p99", onePod, 0.99)}},
		{"a pod is replaced: processor, ms", []line{of("controller", onePod, func(t *table) float64 {
			r := t.row(onePod)
			return ms(r.CPU) / float64(r.Changes)
		}), of("API server", onePod, func(t *table) float64 {
			r := t.row(onePod)
			return ms(r.APICPU) / float64(r.Changes)
		})}},
		{"a pod is replaced: written, KiB", []line{of("in all Works", onePod, func(t *table) float64 {
			r := t.row(onePod)
			return float64(r.Bytes) / float64(r.Changes) / 1024
		})}},
		{"while pods are replaced: p99, ms", []line{latency("10 a second", slowRate, 0.99),
			latency("100 a second", fastRate, 0.99), latency("a quiet cluster beside", quiet, 0.99)}},
		{"converge from empty, s", []line{of("until all are told of all", converge, func(t *table) float64 {
			row := t.row(converge)
			return min(row.Load, row.Took).Seconds()
		})}},
		{"memory of the controller, MiB", []line{of("at most", fastRate, func(t *table) float64 {
			return float64(t.row(fastRate).Peak) / 1024
		})}},
	}
}

func quantileOf(t *table, scenario string, q float64) time.Duration {
	if r := t.row(scenario); r != nil {
		return r.Quantile(q)
	}
	return 0
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// The size of a panel, and of what surrounds its plot, in pixels.
const (
	panelWidth, panelHeight = 320, 220
	left, right, top, below = 56, 16, 48, 34
	perRow                  = 3
)

// colours of lines, which differ for those who see no red, too.
var colours = []string{"#0b5fa5", "#c2570c", "#4d7c0f"}

// plot draws panels as SVG. Both axes begin at nothing.
func plot(panels []panel) []byte {
	rows := (len(panels) + perRow - 1) / perRow
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" `+
		`font-size="11">`+"\n", perRow*panelWidth, rows*panelHeight)
	b.WriteString("<title>What the broker costs by the number of clusters</title>\n" +
		`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", i%perRow*panelWidth, i/perRow*panelHeight)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (p *panel) draw(b *bytes.Buffer) {
	const width, height = panelWidth - left - right, panelHeight - top - below
	most := point{1, 1}
	for _, l := range p.lines {
		for _, at := range l.points {
			most = point{max(most.clusters, at.clusters), max(most.value, at.value)}
		}
	}
	most.value = nice(most.value)
	x := func(v float64) float64 { return left + v/most.clusters*width }
	y := func(v float64) float64 { return top + height - v/most.value*height }
	text := func(x, y float64, anchor, fill, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, fill, s)
	}
	text(left, 16, "start", "#111111", p.title)
	const ticks = 4
	for k := range ticks + 1 {
		v := most.value * float64(k) / ticks
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#dddddd"/>`+"\n", left, y(v), panelWidth-right)
		text(left-6, y(v)+4, "end", "#555555", strconv.FormatFloat(v, 'f', -1, 64))
	}
	text(left+width/2, panelHeight-4, "middle", "#555555", "clusters")
	for i, l := range p.lines {
		colour := colours[i%len(colours)]
		text(left+float64(i*width/len(p.lines)), 34, "start", colour, l.name)
		path := ""
		for k, at := range l.points {
			command := "L"
			if k == 0 {
				command = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", command, x(at.clusters), y(at.value))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%.0f clusters: %.4g</title></circle>`+"\n",
				x(at.clusters), y(at.value), colour, at.clusters, at.value)
			if i == 0 {
				text(x(at.clusters), panelHeight-18, "middle", "#555555", fmt.Sprintf("%.0f", at.clusters))
			}
		}
		if path != "" {
			fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path, colour)
		}
	}
}

// nice is the next of 1, 2, 4, 5 and 10, times a power of ten, so that quarters of it are short.
func nice(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 4, 5, 10} {
		if v <= step*unit {
			return step * unit
		}
	}
	return 10 * unit
}
