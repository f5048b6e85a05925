// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sealane-io/sealane/dataplane/kernel"
	"github.com/sealane-io/sealane/dataplane/plan"
)

// tracked is a UDP connection as connection tracking knows it: from source to service, which is translated to
// backend, and source to masked.
type tracked struct{ source, service, backend, masked string }

// The connections of a pod, 10.8.1.5, and of the node with another cluster, 10.9.0.0/16, and with the world.
var (
	plain      = tracked{"10.8.1.5", "10.9.0.5", "10.9.0.5", "10.8.1.5"}
	byService  = tracked{"10.8.1.5", "10.88.0.5", "10.9.0.6", "10.8.1.5"}
	fromNode   = tracked{"172.31.1.12", "10.88.0.5", "10.9.0.7", "10.8.2.1"}
	fromThere  = tracked{"10.9.0.8", "10.8.1.5", "10.8.1.5", "10.9.0.8"}
	masked     = tracked{"10.8.1.5", "10.9.0.9", "10.9.0.9", "172.31.1.12"}
	maskedVIP  = tracked{"10.8.1.5", "10.88.0.6", "10.9.0.10", "172.31.1.12"}
	maskedBack = tracked{"10.9.0.11", "10.8.1.5", "10.8.1.5", "172.31.1.12"}
	toWorld    = tracked{"10.8.1.5", "192.0.2.1", "192.0.2.1", "172.31.1.12"}
)

func (c tracked) add(t *testing.T) {
	t.Helper()
	const timeout = 600
	tuple := func(source, destination string, sourcePort, destinationPort uint16) netlink.IPTuple {
		return netlink.IPTuple{
			SrcIP: netip.MustParseAddr(source).AsSlice(), DstIP: netip.MustParseAddr(destination).AsSlice(),
			Protocol: unix.IPPROTO_UDP, SrcPort: sourcePort, DstPort: destinationPort,
		}
	}
	flow := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: timeout,
		Forward: tuple(c.source, c.service, 1000, 53), Reverse: tuple(c.backend, c.masked, 53, 1000)}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow); err != nil {
		t.Fatalf("track %v: %v", c, err)
	}
}

// connections returns those that are tracked.
func connections(t *testing.T) []tracked {
	t.Helper()
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	var out []tracked
	for _, f := range flows {
		out = append(out, tracked{f.Forward.SrcIP.String(), f.Forward.DstIP.String(), f.Reverse.SrcIP.String(),
			f.Reverse.DstIP.String()})
	}
	return out
}

func TestTracked(t *testing.T) {
	k, _ := open(t)
	before, err := k.Tracked()
	if err != nil || before.Limit <= 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	plain.add(t)
	masked.add(t)
	after, err := k.Tracked()
	if err != nil || after.Connections != before.Connections+2 || after.Limit != before.Limit {
		t.Errorf("%+v, %v; before %+v", after, err, before)
	}
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := kernel.New(nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	if unknown, err := elsewhere.Tracked(); err == nil {
		t.Errorf("%+v where nothing is tracked", unknown)
	}
}

// What begins while the table is away may be masqueraded, and is forgotten when the table is back; what began
// before is not. A prefix that becomes remote has all its connections forgotten.
func TestConnectionsThatAreForgotten(t *testing.T) {
	before := []tracked{plain, byService, fromNode, fromThere}
	meanwhile := []tracked{masked, maskedVIP, maskedBack}
	for _, c := range []struct {
		name, damage string
		gone         []tracked
	}{
		{"nothing happens", "true", nil},
		{"a reload of the firewall", "nft delete table ip sealane", meanwhile},
		{"and one that empties our sets", "nft flush set ip sealane remote", meanwhile},
		{"others flush the routes", "ip route flush table 5100", nil},
		{"the prefix is new", "nft delete table ip sealane; ip route flush table 5100", slices.Concat(before, meanwhile)},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, key := open(t)
			node := goldens(t, key)["spine.txtar/a-gw"]
			node.become(t)
			reach(t, k, node.plan)
			all := slices.Concat(before, meanwhile, []tracked{toWorld})
			for _, connection := range all {
				connection.add(t)
			}
			run(t, c.damage)
			reach(t, k, node.plan)
			left := connections(t)
			for _, connection := range all {
				if gone := !slices.Contains(left, connection); gone != slices.Contains(c.gone, connection) {
					t.Errorf("%v is gone: %v", connection, gone)
				}
			}
			if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A gateway that begins to give what it translates an address of its own, or ceases to, forgets the connections that it
// has translated to backends on other nodes, and no others.
func TestTranslationsThatAreForgotten(t *testing.T) {
	k, key := open(t)
	node := goldens(t, key)["spine.txtar/a-gw"]
	node.become(t)
	alone := node.plan
	ofSeveral := alone
	ofSeveral.Tables = slices.Clone(alone.Tables)
	ofSeveral.Tables[0].Sets = append(slices.Clone(alone.Tables[0].Sets), plan.Set{Name: "transit",
		Elements: []netip.Prefix{netip.MustParsePrefix("10.8.1.0/24")}})
	toOthers := tracked{"10.9.0.12", "10.88.0.7", "10.8.1.9", "10.9.0.12"}
	toOthersMasked := tracked{"10.9.0.13", "10.88.0.7", "10.8.1.9", "169.254.51.64"}
	toItself := tracked{"10.9.0.14", "10.88.0.7", "10.8.2.9", "10.9.0.14"}
	fromElsewhere := tracked{"192.0.2.1", "10.88.0.7", "10.8.1.9", "192.0.2.1"}
	reach(t, k, alone)
	for _, next := range []plan.Plan{ofSeveral, alone} {
		all := []tracked{plain, byService, fromThere, toItself, fromElsewhere, toOthers, toOthersMasked}
		for _, c := range all {
			c.add(t)
		}
		reach(t, k, next)
		left := connections(t)
		for _, c := range all {
			gone := !slices.Contains(left, c)
			if want := c == toOthers || c == toOthersMasked; gone != want {
				t.Errorf("%v: expected gone to be %v, found %v", c, want, gone)
			}
		}
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			t.Fatal(err)
		}
	}
}
