// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/sealane-io/sealane/e2e/lab"
)

// written names the requests that change one kind of object on one API server.
type written struct{ Server, Resource, Verb string }

// writes are how many of them a change costs, and their bodies' bytes.
type writes struct {
	written
	Count, Bytes float64
}

// writesOf reads what the lab's API servers have counted so far of the objects that carry services: Karmada's
// Works and the kinds of Sealane, of the MCS API and of services.
func writesOf(ctx context.Context, l *lab.Lab) ([]writes, error) {
	var all []writes
	for _, server := range l.Contexts() {
		text, err := l.Kubectl(ctx, "--context", server, "get", "--raw", "/metrics")
		if err != nil {
			return nil, fmt.Errorf("metrics of the API server of %s: %w", server, err)
		}
		found, err := parseWrites(server, string(text))
		if err != nil {
			return nil, fmt.Errorf("metrics of the API server of %s: %w", server, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// sizeLine is a line of the histogram of request bodies: what is summed up, its labels and its value.
func sizeLine() *regexp.Regexp {
	return regexp.MustCompile(
		`(?m)^apiserver_request_body_size_bytes_(sum|count)\{group="([^"]*)",resource="([^"]*)",verb="([^"]*)"\} (\S+)$`)
}

// parseWrites reads an API server's metrics.
func parseWrites(server, text string) ([]writes, error) {
	groups := []string{"work.karmada.io", "sealane.io", "multicluster.x-k8s.io", "discovery.k8s.io"}
	found := map[written]writes{}
	for _, m := range sizeLine().FindAllStringSubmatch(text, -1) {
		what, group, resource, verb := m[1], m[2], m[3], m[4]
		if !slices.Contains(groups, group) && resource != "services" {
			continue
		}
		value, err := strconv.ParseFloat(m[5], 64)
		if err != nil {
			return nil, fmt.Errorf("parse %q: %w", m[0], err)
		}
		key := written{Server: server, Resource: resource, Verb: verb}
		w := found[key]
		w.written = key
		if what == "sum" {
			w.Bytes = value
		} else {
			w.Count = value
		}
		found[key] = w
	}
	return slices.Collect(maps.Values(found)), nil
}

// writesPer is the difference of two readings per change, the most bytes first.
func writesPer(before, after []writes, changes int) []writes {
	old := map[written]writes{}
	for _, w := range before {
		old[w.written] = w
	}
	var out []writes
	for _, w := range after {
		w.Count = (w.Count - old[w.written].Count) / float64(changes)
		w.Bytes = (w.Bytes - old[w.written].Bytes) / float64(changes)
		if w.Count > 0 {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b writes) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}
