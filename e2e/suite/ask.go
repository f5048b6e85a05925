// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sealane-io/sealane/e2e/sealane"
)

// ClientOf is the client pod on the first gateway node of a cluster.
func ClientOf(cluster string) string {
	for _, c := range Lab().Topology.Clusters {
		for _, n := range c.Nodes {
			if c.Name == cluster && n.Gateway {
				return "client-" + n.Name
			}
		}
	}
	return "client-" + cluster
}

// Record is one record of a DNS answer.
type Record struct{ Name, TTL, Type, Data string }

// Reply is a DNS answer as a pod's resolver sees it.
type Reply struct {
	// Rcode is the name of the response code, NOERROR or NXDOMAIN.
	Rcode     string
	Truncated bool
	Records   []Record
}

// Data returns the data of the records of a type, sorted.
func (r Reply) Data(kind string) []string {
	out := []string{}
	for _, record := range r.Records {
		if record.Type == kind {
			out = append(out, record.Data)
		}
	}
	slices.Sort(out)
	return out
}

// LookUp asks the cluster's own DNS from one of its pods.
func LookUp(ctx context.Context, cluster, name, kind string, flags ...string) (Reply, error) {
	out, err := InPod(ctx, cluster, ClientOf(cluster), append(append([]string{"dns"}, flags...), name, kind)...)
	if err != nil {
		return Reply{}, err
	}
	lines := strings.Split(out, "\n")
	first := strings.Fields(lines[0])
	r := Reply{Rcode: first[0], Truncated: len(first) > 1}
	for _, line := range lines[1:] {
		f := strings.SplitN(line, " ", 5)
		if len(f) < 5 {
			return Reply{}, fmt.Errorf("expected a record, found %q", line)
		}
		r.Records = append(r.Records, Record{f[0], f[1], f[3], f[4]})
	}
	return r, nil
}

// Resolves waits until a name has exactly these records of a type; with none, until the name exists without any.
func Resolves(t *testing.T, cluster, name, kind string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	Eventually(t, Patience, func(ctx context.Context) error {
		r, err := LookUp(ctx, cluster, name, kind)
		if err != nil {
			return err
		}
		if got := r.Data(kind); r.Rcode != "NOERROR" || !slices.Equal(got, want) {
			return fmt.Errorf("%s: %s %s: expected %v, found %s %v", cluster, name, kind, want, r.Rcode, got)
		}
		return nil
	})
}

// NoSuchName waits until the answer for a name is NXDOMAIN with a SOA record.
func NoSuchName(t *testing.T, cluster, name string) {
	t.Helper()
	Eventually(t, Patience, func(ctx context.Context) error {
		r, err := LookUp(ctx, cluster, name, "A")
		if err == nil && (r.Rcode != "NXDOMAIN" || len(r.Data("SOA")) != 1) {
			err = fmt.Errorf("%s: %s: expected NXDOMAIN with SOA, found %+v", cluster, name, r)
		}
		return err
	})
}

// Requests makes count requests, each on a connection of its own, and returns the answers. One that fails fails all.
func Requests(ctx context.Context, cluster, pod, url string, count int) ([]sealane.Answer, error) {
	out, err := InPod(ctx, cluster, pod, "http", "-count="+strconv.Itoa(count), "-interval=1ms", "-timeout=2s", url)
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

// AnsweredByAll waits until count requests to a URL are answered by exactly these clusters, and returns how many
// each of them answered.
func AnsweredByAll(t *testing.T, cluster, url string, count int, want ...string) map[string]int {
	t.Helper()
	var found map[string]int
	Eventually(t, Patience, func(ctx context.Context) error {
		answers, err := Requests(ctx, cluster, ClientOf(cluster), url, count)
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

// CheckHTTP expects an answer of the server, which has seen clientIP as the client's address, or, if that is "",
// any address of the client's pod network.
func CheckHTTP(t *testing.T, cluster, client, address, server, clientIP string) {
	t.Helper()
	a, err := Ask(t.Context(), cluster, client, "http://"+address)
	if err != nil {
		t.Errorf("%s to %s: %v", client, address, err)
		return
	}
	if a.Pod != server {
		t.Errorf("%s to %s: answered by %q, expected %q", client, address, a.Pod, server)
	}
	if clientIP != "" && a.Client != clientIP {
		t.Errorf("%s to %s: the server saw %s, expected the client's own %s", client, address, a.Client, clientIP)
	}
	if clientIP == "" && !inPodNetwork(cluster, a.Client) {
		t.Errorf("%s to %s: the server saw %s, expected an address of %s's pod network", client, address, a.Client, cluster)
	}
}

// Whereami is the name in the clusterset of the service whereami-cs, which the workload runs in every cluster.
const Whereami = "whereami-cs.sample.svc.clusterset.local"

// InPod runs the client program (images/client) in a pod of the namespace sample and returns its output.
func InPod(ctx context.Context, cluster, pod string, args ...string) (string, error) {
	return inPodWith(ctx, nil, cluster, pod, args...)
}

// inPodWith is InPod with a standard input.
func inPodWith(ctx context.Context, stdin io.Reader, cluster, pod string, args ...string) (string, error) {
	a, err := API(cluster)
	if err != nil {
		return "", err
	}
	return a.ExecWith(ctx, stdin, "sample", pod, append([]string{"/client"}, args...)...)
}

// Ask asks a whereami server from a pod.
func Ask(ctx context.Context, cluster, pod, url string) (sealane.Answer, error) {
	out, err := InPod(ctx, cluster, pod, "http", url)
	if err != nil {
		return sealane.Answer{}, err
	}
	return sealane.ParseAnswer([]byte(out))
}

// AnsweredBy asks by name until the cluster want answers. If that is another cluster, it must have seen an address
// of the client's pod network; within a cluster the CNI may masquerade, as it does in c1.
func AnsweredBy(t *testing.T, from, pod, name, want string) {
	t.Helper()
	Eventually(t, Patience, func(ctx context.Context) error {
		a, err := Ask(ctx, from, pod, "http://"+name)
		if err != nil {
			return err
		}
		if a.Cluster != want {
			return fmt.Errorf("%s answered by %q, expected %q", name, a.Cluster, want)
		}
		if from != want && !inPodNetwork(from, a.Client) {
			return fmt.Errorf("the server saw client %s, expected a pod address of %s", a.Client, from)
		}
		return nil
	})
}

func inPodNetwork(cluster, ip string) bool {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	for _, c := range Lab().Topology.Clusters {
		for _, cidr := range c.PodCIDRs {
			if c.Name == cluster && netip.MustParsePrefix(cidr).Contains(addr) {
				return true
			}
		}
	}
	return false
}
