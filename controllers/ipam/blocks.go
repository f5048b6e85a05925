// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"github.com/sealane-io/sealane/internal/globalnet"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// Reasons of errors.
const (
	// ReasonPoolExhausted: no block is left.
	ReasonPoolExhausted = "GlobalPoolExhausted"
	// ReasonBlockConflict: the block that is stated for a cluster cannot be its own.
	ReasonBlockConflict = "GlobalCIDRConflict"
)

// Error says why a cluster has no block.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Message }

// Reason of an error of this package; "" of any other.
func Reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func errorf(reason, format string, args ...any) error {
	return &Error{reason, fmt.Sprintf(format, args...)}
}

// Blocks are the blocks of a ClusterSet's clusters, and what no block may overlap.
type Blocks struct {
	pool globalnet.Pool
	// taken holds blocks by cluster, and networks what others have, described for people.
	taken, networks netfacts.Owners
	// ipv6 holds what clusters have of IPv6.
	ipv6 netfacts.Owners
	of   map[string][]netip.Prefix
	left map[netip.Prefix]bool
}

// NewBlocks returns the blocks of a pool, none of which is taken. Without a range only stated ones are given.
func NewBlocks(pool globalnet.Pool) *Blocks {
	return &Blocks{pool: pool, of: map[string][]netip.Prefix{}, left: map[netip.Prefix]bool{}}
}

// Take notes the block that a cluster has. It returns the owner of another that it overlaps, if there is one, and then
// notes nothing.
func (b *Blocks) Take(cluster string, block netip.Prefix) (owner string, ok bool) {
	if other, overlaps := b.taken.Overlap(block, cluster); overlaps {
		return other.Owner, false
	}
	b.taken.Add(block, cluster)
	b.of[cluster] = append(b.of[cluster], block)
	return "", true
}

// TakeIPv6 notes what a cluster has of IPv6. No other has it that has another block.
func (b *Blocks) TakeIPv6(cluster string, p netip.Prefix) {
	if p.IsValid() {
		b.ipv6.Add(p, cluster)
	}
}

// IPv6 returns what a block from the pool has of IPv6.
func (b *Blocks) IPv6(block netip.Prefix) netip.Prefix { return globalnet.IPv6(b.pool.IPv6, block) }

// Keep notes a block that a cluster had, and has no more unless it was taken. The cluster will get it again.
func (b *Blocks) Keep(cluster string, block netip.Prefix) {
	if slices.Contains(b.of[cluster], block) {
		return
	}
	if _, ok := b.Take(cluster, block); ok {
		b.left[block] = true
		b.TakeIPv6(cluster, b.IPv6(block))
	}
}

// Avoid notes a network that no block may overlap. What says whose it is, as in "pods of cluster c1".
func (b *Blocks) Avoid(network netip.Prefix, what string) { b.networks.Add(network, what) }

// Reclaim forgets a network that was noted by Avoid.
func (b *Blocks) Reclaim(network netip.Prefix, what string) { b.networks.Remove(network, what) }

// Overlaps returns a block of another cluster that a network overlaps, and whose it is.
func (b *Blocks) Overlaps(network netip.Prefix, cluster string) (netfacts.Owned, bool) {
	if network.Addr().Is6() {
		return b.ipv6.Overlap(network, cluster)
	}
	return b.taken.Overlap(network, cluster)
}

// Want is a cluster that has no block, and the one that is stated for it, if one is.
type Want struct {
	Cluster string
	Stated  netip.Prefix
}

// AssignAll gives each of some clusters a block as Assign does, or none of them if one cannot have any.
func (b *Blocks) AssignAll(wants []Want) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(wants))
	var undo []func()
	for _, w := range wants {
		before, kept := slices.Clone(b.of[w.Cluster]), maps.Clone(b.left)
		block, err := b.Assign(w.Cluster, w.Stated)
		if err != nil {
			slices.Reverse(undo)
			for _, do := range undo {
				do()
			}
			return nil, err
		}
		out = append(out, block)
		undo = append(undo, func() {
			if !slices.Contains(before, block) {
				b.taken.Remove(block, w.Cluster)
			}
			b.of[w.Cluster], b.left = before, kept
		})
	}
	return out, nil
}

// Assign gives a cluster that has none a block and takes it: the one that is stated for it, if that is valid, or the
// one that it had before, or the first free one after a place that its name determines. The error is an *Error.
func (b *Blocks) Assign(cluster string, stated netip.Prefix) (netip.Prefix, error) {
	if stated.IsValid() {
		if why := b.conflict(cluster, stated); why != "" {
			return netip.Prefix{}, errorf(ReasonBlockConflict, "the block %s that is stated for %s overlaps %s: state another "+
				"in spec.clusters[].globalnet.cidr of the ClusterSet, or none, and it gets one from the pool", stated, cluster, why)
		}
		b.Take(cluster, stated)
		delete(b.left, stated)
		return stated, nil
	}
	for _, had := range b.of[cluster] {
		if b.pool.Contains(had) && b.conflict(cluster, had) == "" {
			delete(b.left, had)
			return had, nil
		}
	}
	size := b.pool.Size()
	for i := range size {
		block := b.pool.Block((place(cluster, size) + i) % size)
		if b.conflict(cluster, block) == "" {
			b.Take(cluster, block)
			return block, nil
		}
	}
	return netip.Prefix{}, errorf(ReasonPoolExhausted,
		"no block of /%d is left for %s in the pool of global addresses %s: "+
			"all %d are in use, kept for clusters that left (%d), or overlap networks of clusters: add a range to "+
			"spec.globalnet.cidrs of the ClusterSet", b.pool.Bits, cluster, b.pool, size, len(b.left))
}

// place is where in the pool the search for a cluster's block begins. Names far apart leave a block alone for long
// after its cluster has left, and the order in which clusters come matters little.
func place(cluster string, size int) int {
	if size == 0 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(cluster)) // never fails
	return int(h.Sum32() % uint32(size))
}

// conflict says what a block of a cluster would overlap; "" for nothing.
func (b *Blocks) conflict(cluster string, block netip.Prefix) string {
	if other, ok := b.taken.Overlap(block, cluster); ok {
		if b.left[other.Prefix] {
			return fmt.Sprintf("the block %s that is kept for cluster %s, which left", other.Prefix, other.Owner)
		}
		return fmt.Sprintf("the block %s of cluster %s", other.Prefix, other.Owner)
	}
	if network, ok := b.networks.Overlap(block, ""); ok {
		return fmt.Sprintf("%s, %s", network.Prefix, network.Owner)
	}
	ipv6 := b.IPv6(block)
	if !ipv6.IsValid() {
		return ""
	}
	if network, ok := b.networks.Overlap(ipv6, ""); ok {
		return fmt.Sprintf("%s, %s, with what it has of IPv6, %s", network.Prefix, network.Owner, ipv6)
	}
	return ""
}
