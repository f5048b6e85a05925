// SPDX-License-Identifier: Apache-2.0

package globalnet

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// maxBlocksBits bounds how many blocks a range is divided into: 65536.
const maxBlocksBits = 16

// Pool is what blocks are taken from.
type Pool struct {
	// Ranges that are divided into blocks, in the order in which they are used.
	Ranges []netip.Prefix
	// Bits of a block.
	Bits int
	// IPv6 is the /48 that blocks have their part of IPv6 in; invalid if there is none.
	IPv6 netip.Prefix
}

// ParsePool parses a pool.
func ParsePool(cidrs []string, bits int) (Pool, error) {
	pool := Pool{Bits: bits}
	if bits < netfacts.MinBlockBits || bits > netfacts.MaxBlockBits {
		return Pool{}, fmt.Errorf("a block of global addresses is of /%d to /%d, not of /%d",
			netfacts.MinBlockBits, netfacts.MaxBlockBits, bits)
	}
	for _, text := range cidrs {
		p, err := netfacts.ParseGlobal(text)
		if err != nil {
			return Pool{}, fmt.Errorf("range of global addresses: %w", err)
		}
		if p.Bits() > bits || bits-p.Bits() > maxBlocksBits {
			return Pool{}, fmt.Errorf("%s cannot be divided into blocks of /%d: it needs to be of /%d to /%d", p,
				bits, max(bits-maxBlocksBits, netfacts.MinBlockBits), bits)
		}
		for _, q := range pool.Ranges {
			if q.Overlaps(p) {
				return Pool{}, fmt.Errorf("ranges %s and %s of global addresses overlap", q, p)
			}
		}
		pool.Ranges = append(pool.Ranges, p)
	}
	if len(pool.Ranges) == 0 {
		return Pool{}, errors.New("there is no range of global addresses: state one, such as 242.0.0.0/8")
	}
	return pool, nil
}

// PoolOf returns the pool of a ClusterSet. What an older client left out is the default.
func PoolOf(spec v1alpha1.GlobalnetSpec) (Pool, error) {
	cidrs := spec.CIDRs
	if len(cidrs) == 0 {
		cidrs = []string{"242.0.0.0/8"}
	}
	pool, err := ParsePool(cidrs, int(cmp.Or(spec.BlockPrefixLength, 16)))
	if err != nil {
		return Pool{}, err
	}
	if pool.IPv6, err = netfacts.ParseGlobalIPv6(cmp.Or(spec.IPv6CIDR, "fd5e:a1a4:e242::/48")); err != nil {
		return Pool{}, fmt.Errorf("range of global addresses of IPv6: %w", err)
	}
	return pool, nil
}

// Size is how many blocks the pool has.
func (p Pool) Size() int {
	n := 0
	for _, r := range p.Ranges {
		n += 1 << (p.Bits - r.Bits())
	}
	return n
}

// Block returns a block by its number, from 0 to Size.
func (p Pool) Block(n int) netip.Prefix {
	for _, r := range p.Ranges {
		size := 1 << (p.Bits - r.Bits())
		if n < size {
			return netip.PrefixFrom(add(r.Addr(), uint32(n)<<(32-p.Bits)), p.Bits)
		}
		n -= size
	}
	return netip.Prefix{}
}

// Contains says whether a prefix is one of the pool's blocks.
func (p Pool) Contains(block netip.Prefix) bool {
	for _, r := range p.Ranges {
		if block.Bits() == p.Bits && r.Contains(block.Addr()) {
			return true
		}
	}
	return false
}

func (p Pool) String() string {
	texts := make([]string, len(p.Ranges))
	for i, r := range p.Ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}
