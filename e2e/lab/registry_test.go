// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func free(netip.Prefix) bool { return false }

func TestLabsStandSideBySide(t *testing.T) {
	r := registry{Dir: t.TempDir(), Taken: free}
	owner := map[string]string{}
	for n := range maxLabs {
		dir := fmt.Sprintf("/src/%d/.lab", n)
		index, err := r.Acquire(dir)
		if err != nil {
			t.Fatal(err)
		}
		l := layout{index: index, dir: dir}
		for _, own := range []string{
			l.hostLink(), l.underlayNetns(), l.nodeNetns("c1-gw"), l.cgroup(), l.lockPath(),
			l.prefix4().String(), l.prefix6().String(), l.hostAddr(IPv4).String(), l.nodeAddr(IPv6, 1, 1).String(),
			fmt.Sprint(portAggregated + l.index),
		} {
			if other, taken := owner[own]; taken {
				t.Errorf("%s belongs to %s and to %s", own, other, dir)
			}
			owner[own] = dir
		}
		if len(l.hostLink()) > 15 {
			t.Errorf("link name %s is too long for the kernel", l.hostLink())
		}
	}
	if _, err := r.Acquire("/one/more"); err == nil {
		t.Error("a lab too many got an index")
	}
}

func TestPortsOfOneLabDiffer(t *testing.T) {
	used := map[int]string{}
	claim := func(port int, what string) {
		if other, taken := used[port]; taken {
			t.Errorf("port %d: %s and %s", port, other, what)
		}
		used[port] = what
	}
	for i, port := range []int{portEtcdClient, portEtcdPeer, portKarmadaAPI, portKarmadaKCM, portKarmadaCM,
		portKarmadaCMHealth,
		portKarmadaSched, portKarmadaSchedHealth, portKarmadaWebhook, portWebhookMetrics, portWebhookHealth} {
		claim(port, fmt.Sprintf("karmada %d", i))
	}
	for i := range maxClusters {
		for _, base := range []int{portMemberAPI, portMemberKCM, portMemberSched, portMemberAgent, portMemberAgentHealth} {
			claim(memberPort(base, i), fmt.Sprintf("member %d %d", i, base))
		}
	}
}

func TestIndexStaysUntilReleased(t *testing.T) {
	r := registry{Dir: t.TempDir(), Taken: free}
	first, err := r.Acquire("/a/.lab")
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Acquire("/a/.lab")
	if err != nil || again != first {
		t.Errorf("acquired %d and then %d (%v)", first, again, err)
	}
	if err := r.Release(first); err != nil {
		t.Fatal(err)
	}
	if _, found, err := r.Find("/a/.lab"); found || err != nil {
		t.Errorf("found after release: %t, %v", found, err)
	}
}

func TestLabsStartedTogetherDiffer(t *testing.T) {
	r := registry{Dir: t.TempDir(), Taken: free}
	indexes := make([]int, 8)
	var wg sync.WaitGroup
	for n := range indexes {
		wg.Go(func() {
			index, err := r.Acquire(fmt.Sprintf("/together/%d", n))
			if err != nil {
				t.Error(err)
			}
			indexes[n] = index
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, i := range indexes {
		if seen[i] {
			t.Errorf("index %d was given twice: %v", i, indexes)
		}
		seen[i] = true
	}
}

func TestNetworksOfTheMachineAreAvoided(t *testing.T) {
	only := 5
	r := registry{Dir: t.TempDir(), Taken: func(p netip.Prefix) bool { return p != (layout{index: only}).prefix4() }}
	index, err := r.Acquire("/a")
	if err != nil || index != only {
		t.Errorf("got index %d (%v), want %d: all others overlap", index, err, only)
	}
}

func TestSubnetsOfALabAreItsOwn(t *testing.T) {
	for index := range maxLabs {
		l := layout{index: index}
		for i := range maxClusters + 1 {
			for _, family := range []string{IPv4, IPv6} {
				if s := l.subnet(family, i); !l.prefix(family).Overlaps(s) || s.Bits() < l.prefix(family).Bits() {
					t.Errorf("lab %d: subnet %s outside %s", index, s, l.prefix(family))
				}
			}
		}
	}
}

// A lock whose file its holders remove still has one holder at a time, and leaves nothing behind.
func TestALockThatIsRemovedIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lab.lock")
	var holders, most atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				unlock, err := lockFile(path)
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n > most.Load() {
					most.Store(n)
				}
				holders.Add(-1) // what a holder does last is to remove the file
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
				unlock()
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d held the lock at once", most.Load())
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}
