// SPDX-License-Identifier: Apache-2.0

package ipam_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/controllers/ipam"
	"github.com/sealane-io/sealane/internal/globalnet"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func pool(t testing.TB, bits int, cidrs ...string) globalnet.Pool {
	p, err := globalnet.ParsePool(cidrs, bits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConflictsNameBoth shows what an admin reads who states a block that cannot be.
func TestConflictsNameBoth(t *testing.T) {
	b := ipam.NewBlocks(pool(t, 16, "242.0.0.0/8"))
	b.Take("g1", prefix("120.1.0.0/16"))
	b.Keep("gone", prefix("120.9.0.0/16"))
	b.Avoid(prefix("10.8.0.0/16"), "pods of cluster c1")
	b.Avoid(prefix("120.4.0.7/32"), "a node of cluster c2")
	for stated, want := range map[string]string{
		"120.1.2.0/24":  "the block 120.1.0.0/16 of cluster g1",
		"120.0.0.0/8":   "the block 120.1.0.0/16 of cluster g1",
		"120.9.0.0/24":  "the block 120.9.0.0/16 that is kept for cluster gone, which left",
		"10.8.128.0/20": "10.8.0.0/16, pods of cluster c1",
		"120.4.0.0/16":  "120.4.0.7/32, a node of cluster c2",
	} {
		_, err := b.Assign("g2", prefix(stated))
		if ipam.Reason(err) != ipam.ReasonBlockConflict {
			t.Errorf("%s: %v", stated, err)
			continue
		}
		for _, part := range []string{stated, "g2", want, "spec.clusters[].globalnet.cidr"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", stated, err, part)
			}
		}
	}
	if got, err := b.Assign("g2", prefix("120.2.0.0/24")); err != nil || got != prefix("120.2.0.0/24") {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := b.Assign("gone", prefix("120.9.0.0/24")); err != nil || got != prefix("120.9.0.0/24") {
		t.Errorf("a part of what is kept for the cluster itself: %v, %v", got, err)
	}
}

// TestIPv6OfBlocks: a block is not given whose IPv6 is a cluster's network, and what a network overlaps is found.
func TestIPv6OfBlocks(t *testing.T) {
	p, err := globalnet.PoolOf(v1alpha1.GlobalnetSpec{CIDRs: []string{"242.0.0.0/14"}})
	if err != nil {
		t.Fatal(err)
	}
	b := ipam.NewBlocks(p)
	b.Avoid(prefix("fd5e:a1a4:e242:f200::/64"), "pods of cluster c1")
	b.Avoid(prefix("fd5e:a1a4:e242:f201::7/128"), "a node of cluster c2")
	b.Keep("gone", prefix("242.2.0.0/16"))
	got, err := b.Assign("g1", netip.Prefix{})
	if err != nil || got != prefix("242.3.0.0/16") || b.IPv6(got) != prefix("fd5e:a1a4:e242:f203::/64") {
		t.Fatalf("got %v with %v of IPv6, %v", got, b.IPv6(got), err)
	}
	b.TakeIPv6("g1", b.IPv6(got))
	if _, err := b.Assign("g2", netip.Prefix{}); ipam.Reason(err) != ipam.ReasonPoolExhausted {
		t.Errorf("another block: %v", err)
	}
	_, err = b.Assign("g2", prefix("242.1.0.0/24"))
	if ipam.Reason(err) != ipam.ReasonBlockConflict || !strings.Contains(err.Error(), "a node of cluster c2") ||
		!strings.Contains(err.Error(), "fd5e:a1a4:e242:f201::/120") {
		t.Errorf("a stated block: %v", err)
	}
	for network, owner := range map[string]string{"fd5e:a1a4:e242:f203:5::/80": "g1", "fd5e:a1a4:e242:f202::/64": "gone",
		"fd5e:a1a4:e242:f204::/64": "", "242.3.7.0/24": "g1"} {
		if found, ok := b.Overlaps(prefix(network), ""); ok != (owner != "") || found.Owner != owner {
			t.Errorf("%s overlaps what %q has, want %q", network, found.Owner, owner)
		}
	}
}

func TestExhaustion(t *testing.T) {
	b := ipam.NewBlocks(pool(t, 18, "242.0.0.0/16"))
	b.Take("g1", prefix("242.0.0.0/18"))
	b.Keep("gone", prefix("242.0.64.0/18"))
	b.Avoid(prefix("242.0.200.0/24"), "services of cluster c1")
	got, err := b.Assign("g2", netip.Prefix{})
	if err != nil || got != prefix("242.0.128.0/18") {
		t.Fatalf("the only free block: %v, %v", got, err)
	}
	_, err = b.Assign("g3", netip.Prefix{})
	if ipam.Reason(err) != ipam.ReasonPoolExhausted {
		t.Fatal(err)
	}
	for _, part := range []string{"/18", "g3", "242.0.0.0/16", "all 4", "left (1)", "spec.globalnet.cidrs"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if got, err := b.Assign("gone", netip.Prefix{}); err != nil || got != prefix("242.0.64.0/18") {
		t.Errorf("the cluster that comes back: %v, %v", got, err)
	}
	if _, err := ipam.NewBlocks(globalnet.Pool{}).Assign("g1", netip.Prefix{}); ipam.Reason(
		err) != ipam.ReasonPoolExhausted {
		t.Errorf("no pool: %v", err)
	}
}

// TestOrderOfClusters: what a cluster gets from an empty pool does not depend on who came before, unless
// their names lead to the same block.
func TestOrderOfClusters(t *testing.T) {
	names := []string{"g1", "g2", "berlin", "paris", "rome"}
	var first map[string]netip.Prefix
	for range 5 {
		b := ipam.NewBlocks(pool(t, 16, "242.0.0.0/8"))
		got := map[string]netip.Prefix{}
		for _, name := range names {
			block, err := b.Assign(name, netip.Prefix{})
			if err != nil {
				t.Fatal(err)
			}
			got[name] = block
		}
		if first == nil {
			first = got
		}
		for name, block := range got {
			if first[name] != block {
				t.Errorf("%s has %s or %s", name, block, first[name])
			}
		}
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
}

// walk is a ClusterSet whose clusters come and go, and whose broker restarts.
type walk struct {
	now    time.Time
	record []v1alpha1.GlobalBlock
	held   map[string]netip.Prefix
	// routes are the blocks that some member has not yet answered to have given up.
	routes map[netip.Prefix]bool
	// lastHeld is when, and by whom, a block was last held.
	lastHeld map[netip.Prefix]string
	until    map[netip.Prefix]time.Time
}

// blocks are what a broker that has just started knows.
func (w *walk) blocks(pool globalnet.Pool) *ipam.Blocks {
	b := ipam.NewBlocks(pool)
	for cluster, block := range w.held {
		b.Take(cluster, block)
	}
	for _, e := range w.record {
		if e.KeptUntil != nil {
			b.Keep(e.Cluster, prefix(e.CIDR))
		}
	}
	return b
}

// FuzzBlocks lets clusters join, leave and come back in any order. No two ever hold what overlaps, no block goes to
// another within its retention or while it is routed, and who comes back within it has the same block.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 128, 129, 0, 200, 1, 255, 255, 0})
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		steps := make([]byte, 300)
		for i := range steps {
			steps[i] = byte(r.IntN(256))
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		pool, err := globalnet.ParsePool([]string{"242.0.0.0/24"}, 26)
		if err != nil {
			t.Fatal(err)
		}
		w := walk{now: time.Unix(1e9, 0), held: map[string]netip.Prefix{}, routes: map[netip.Prefix]bool{},
			lastHeld: map[netip.Prefix]string{}, until: map[netip.Prefix]time.Time{}}
		for _, step := range steps[:min(len(steps), 300)] {
			cluster := fmt.Sprintf("g%d", step%7)
			switch step >> 6 {
			case 0: // joins
				if _, member := w.held[cluster]; !member {
					w.join(t, pool, cluster)
				}
			case 1: // leaves
				if block, member := w.held[cluster]; member {
					delete(w.held, cluster)
					w.routes[block], w.until[block] = true, w.now.Add(ipam.Retention).Truncate(time.Second)
				}
			case 2: // time passes
				w.now = w.now.Add(time.Duration(step%64) * time.Hour)
			case 3: // all members have answered
				clear(w.routes)
			}
			w.record = ipam.Ledger(w.record, w.held, func(p netip.Prefix) bool { return w.routes[p] }, w.now)
			again := ipam.Ledger(w.record, w.held, func(p netip.Prefix) bool { return w.routes[p] }, w.now)
			if !slices.EqualFunc(w.record, again, func(a, b v1alpha1.GlobalBlock) bool {
				return a.Cluster == b.Cluster && a.CIDR == b.CIDR && a.KeptUntil.Equal(b.KeptUntil)
			}) {
				t.Fatalf("a second look changes %v to %v", w.record, again)
			}
		}
	})
}

func (w *walk) join(t *testing.T, pool globalnet.Pool, cluster string) {
	block, err := w.blocks(pool).Assign(cluster, netip.Prefix{})
	restarted, errRestarted := w.blocks(pool).Assign(cluster, netip.Prefix{})
	if block != restarted || (err == nil) != (errRestarted == nil) {
		t.Fatalf("%s gets %v, after a restart %v", cluster, block, restarted)
	}
	if err != nil {
		// All that is left must be held or kept.
		for _, e := range w.record {
			if e.KeptUntil != nil && !w.now.Before(e.KeptUntil.Time) && !w.routes[prefix(e.CIDR)] {
				t.Fatalf("%v while %s is free", err, e.CIDR)
			}
		}
		return
	}
	for other, held := range w.held {
		if held.Overlaps(block) {
			t.Fatalf("%s and %s both hold %s", other, cluster, block)
		}
	}
	if last, ok := w.lastHeld[block]; ok && last != cluster && (w.now.Before(w.until[block]) || w.routes[block]) {
		t.Fatalf("%s, which was that of %s, goes to %s at %s, kept until %s", block, last, cluster, w.now, w.until[block])
	}
	for had, last := range w.lastHeld {
		if last == cluster && w.now.Before(w.until[had]) && had != block {
			t.Fatalf("%s had %s and comes back to %s", cluster, had, block)
		}
	}
	w.held[cluster], w.lastHeld[block] = block, cluster
	delete(w.routes, block)
}

// TestLedgerDropsWhatIsNoBlock: the status of an object can be edited, and come from a backup.
func TestLedgerDropsWhatIsNoBlock(t *testing.T) {
	record := []v1alpha1.GlobalBlock{
		{Cluster: "a", CIDR: "not a block"}, {Cluster: "", CIDR: "242.1.0.0/16"}, {Cluster: "b", CIDR: "242.2.0.0/15"},
		{Cluster: "c", CIDR: "242.4.0.0/16"}, {Cluster: "d", CIDR: "242.4.0.0/16"}, {Cluster: "e", CIDR: "0.0.0.0/0"},
	}
	got := ipam.Ledger(record, map[string]netip.Prefix{"g": prefix("242.3.0.0/16")},
		func(netip.Prefix) bool { return false },
		time.Unix(1e9, 0))
	var texts []string
	for _, e := range got {
		texts = append(texts, fmt.Sprint(e.Cluster, " ", e.CIDR, " ", e.KeptUntil != nil))
	}
	want := []string{"c 242.4.0.0/16 true", "g 242.3.0.0/16 false"}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}
