// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/sealane"
)

// client is the pod that asks for a cluster.
func clientOf(cluster string) string { return "client-" + cluster + "-gw" }

// record is one of a DNS answer.
type record struct{ name, ttl, kind, data string }

// reply is a DNS answer as a pod's resolver sees it.
type reply struct {
	rcode     string
	truncated bool
	records   []record
}

// data of the records of a type, sorted.
func (r reply) data(kind string) []string {
	out := []string{}
	for _, record := range r.records {
		if record.kind == kind {
			out = append(out, record.data)
		}
	}
	slices.Sort(out)
	return out
}

// look asks the cluster's own DNS from one of its pods.
func look(ctx context.Context, cluster, name, kind string, flags ...string) (reply, error) {
	out, err := in(ctx, cluster, clientOf(cluster), append(append([]string{"dns"}, flags...), name, kind)...)
	if err != nil {
		return reply{}, err
	}
	lines := strings.Split(out, "\n")
	first := strings.Fields(lines[0])
	r := reply{rcode: first[0], truncated: len(first) > 1}
	for _, line := range lines[1:] {
		f := strings.SplitN(line, " ", 5)
		if len(f) < 5 {
			return reply{}, fmt.Errorf("expected a record, found %q", line)
		}
		r.records = append(r.records, record{f[0], f[1], f[3], f[4]})
	}
	return r, nil
}

// resolves waits until a name has exactly these records of a type; none means that the name is known.
func resolves(t *testing.T, cluster, name, kind string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	eventually(t, patience, func(ctx context.Context) error {
		r, err := look(ctx, cluster, name, kind)
		if err != nil {
			return err
		}
		if got := r.data(kind); r.rcode != "NOERROR" || !slices.Equal(got, want) {
			return fmt.Errorf("%s: %s %s: expected %v, found %s %v", cluster, name, kind, want, r.rcode, got)
		}
		return nil
	})
}

// unknown waits until a name is unknown.
func unknown(t *testing.T, cluster, name string) {
	t.Helper()
	eventually(t, patience, func(ctx context.Context) error {
		r, err := look(ctx, cluster, name, "A")
		if err == nil && (r.rcode != "NXDOMAIN" || len(r.data("SOA")) != 1) {
			err = fmt.Errorf("%s: %s: expected NXDOMAIN with SOA, found %+v", cluster, name, r)
		}
		return err
	})
}

// requests makes some, each on a connection of its own, and returns who answered. All must be.
func requests(ctx context.Context, cluster, pod, url string, count int) ([]sealane.Answer, error) {
	out, err := in(ctx, cluster, pod, "http", "-count="+strconv.Itoa(count), "-interval=1ms", "-timeout=2s", url)
	if err != nil {
		return nil, err
	}
	var answers []sealane.Answer
	for line := range strings.SplitSeq(out, "\n") {
		if line == "" {
			continue
		}
		a, err := sealane.ParseAnswer([]byte(line))
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// shares waits until requests to a URL are answered by exactly these clusters, and returns how many by each.
func shares(t *testing.T, cluster, url string, count int, want ...string) map[string]int {
	t.Helper()
	var found map[string]int
	eventually(t, patience, func(ctx context.Context) error {
		answers, err := requests(ctx, cluster, clientOf(cluster), url, count)
		if err != nil {
			return err
		}
		found = map[string]int{}
		for _, a := range answers {
			// A pod that Karmada spreads knows its node only, which is named after the cluster.
			found[cmp.Or(a.Cluster, a.Node[:2])]++
		}
		for _, c := range want {
			if found[c] == 0 || len(found) != len(want) {
				return fmt.Errorf("%s: %s: expected answers of %v, found %v", cluster, url, want, found)
			}
		}
		return nil
	})
	return found
}
