// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// An accept in our own nftables table does not stop another base chain from dropping, so ours have to be
// in the chain itself: where container engines set the policy to DROP and host firewalls add rejects.
// They go to the head when missing, and are left where they are afterwards: network policies that
// enforce themselves ahead of everybody stay ahead.

const (
	filterTable    = "filter"
	forwardChain   = "FORWARD"
	acceptComment  = "sealane"
	lockSeconds    = 5 // to wait for the xtables lock
	linkWildcard   = plan.LinkPrefix + "+"
	legacyV4Tables = "/proc/net/ip_tables_names"
	legacyV6Tables = "/proc/net/ip6_tables_names"
)

func acceptRules() [][]string {
	var rules [][]string
	for _, direction := range []string{"-i", "-o"} {
		rules = append(rules, []string{direction, linkWildcard, "-m", "comment", "--comment", acceptComment, "-j", "ACCEPT"})
	}
	return rules
}

// backends returns the iptables of a family whose FORWARD chains see packets: that of nftables always,
// the legacy one where it has a filter table.
func backends(f plan.Family) ([]*iptables.IPTables, error) {
	name, protocol, tables := "iptables", iptables.ProtocolIPv4, legacyV4Tables
	if f == plan.IPv6 {
		name, protocol, tables = "ip6tables", iptables.ProtocolIPv6, legacyV6Tables
	}
	paths := []string{name + "-nft"}
	if names, err := os.ReadFile(tables); err == nil && slices.Contains(strings.Fields(string(names)), filterTable) {
		paths = append(paths, name+"-legacy")
	}
	var out []*iptables.IPTables
	for _, path := range paths {
		b, err := iptables.New(iptables.Path(path), iptables.IPFamily(protocol), iptables.Timeout(lockSeconds))
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		out = append(out, b)
	}
	return out, nil
}

// accepted says whether every FORWARD chain of the family has our accepts.
func (f *firewall) accepted(family plan.Family) (bool, error) {
	all, err := backends(family)
	if err != nil {
		return false, err
	}
	for _, b := range all {
		rules, err := b.List(filterTable, forwardChain)
		if err != nil {
			return false, fmt.Errorf("list the FORWARD chain: %w", err)
		}
		for _, accept := range acceptRules() {
			start := "-A " + forwardChain + " " + strings.Join(accept[:2], " ") + " "
			if !slices.ContainsFunc(rules, func(r string) bool {
				return strings.HasPrefix(r, start) && strings.HasSuffix(r, "-j ACCEPT")
			}) {
				return false, nil
			}
		}
	}
	return true, nil
}

func (f *firewall) insertAccepts(family plan.Family) error {
	all, err := backends(family)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		for _, accept := range acceptRules() {
			errs = append(errs, b.InsertUnique(filterTable, forwardChain, 1, accept...))
		}
	}
	return errors.Join(errs...)
}

func (f *firewall) deleteAccepts(family plan.Family) error {
	all, err := backends(family)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		for _, accept := range acceptRules() {
			errs = append(errs, b.DeleteIfExists(filterTable, forwardChain, accept...))
		}
	}
	return errors.Join(errs...)
}
