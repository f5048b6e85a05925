// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-iptables/iptables"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// An accept in our own nftables table does not stop another base chain from dropping, so ours have to be
// in the chain itself: where container engines set the policy to DROP and host firewalls add rejects. They
// accept what our forward chain has marked, which is between the local and the remote networks, and nothing
// without that chain. They go to the head when missing, and are left where they are afterwards: network
// policies that enforce themselves ahead of everybody stay ahead.

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
	mark := fmt.Sprintf("%#x/%#x", plan.ForwardMark, plan.ForwardMark)
	var rules [][]string
	for _, direction := range []string{"-i", "-o"} {
		rules = append(rules, []string{direction, linkWildcard, "-m", "mark", "--mark", mark,
			"-m", "comment", "--comment", acceptComment, "-j", "ACCEPT"})
	}
	return rules
}

// accepts is what is known of the FORWARD chains.
type accepts struct {
	mu       sync.Mutex
	programs map[string]*iptables.IPTables // by their names
	// seen says, by family, whether the chain of nftables had our accepts when it had last changed.
	seen map[plan.Family]seenAccepts
}

type seenAccepts struct {
	changes  uint64
	accepted bool
}

// backend is one iptables.
type backend struct {
	*iptables.IPTables
	legacy bool // and not by nftables, so that no event tells of its changes
}

// backends returns the iptables of a family whose FORWARD chains see packets: that of nftables always,
// the legacy one where it has a filter table.
func (a *accepts) backends(f plan.Family) ([]backend, error) {
	name, protocol, tables := "iptables", iptables.ProtocolIPv4, legacyV4Tables
	if f == plan.IPv6 {
		name, protocol, tables = "ip6tables", iptables.ProtocolIPv6, legacyV6Tables
	}
	paths := []string{name + "-nft"}
	if names, err := os.ReadFile(tables); err == nil && slices.Contains(strings.Fields(string(names)), filterTable) {
		paths = append(paths, name+"-legacy")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []backend
	for i, path := range paths {
		if a.programs[path] == nil {
			b, err := iptables.New(iptables.Path(path), iptables.IPFamily(protocol), iptables.Timeout(lockSeconds))
			if err != nil {
				return nil, fmt.Errorf("open %s: %w", path, err)
			}
			if a.programs == nil {
				a.programs = map[string]*iptables.IPTables{}
			}
			a.programs[path] = b // which asks it for its version
		}
		out = append(out, backend{a.programs[path], i > 0})
	}
	return out, nil
}

// ownAccepts returns the rules with our comment in a FORWARD chain, each as the arguments that made it.
func ownAccepts(b backend) ([][]string, error) {
	rules, err := b.List(filterTable, forwardChain)
	if err != nil {
		return nil, fmt.Errorf("list the FORWARD chain: %w", err)
	}
	var own [][]string
	for _, r := range rules {
		args, isRule := strings.CutPrefix(r, "-A "+forwardChain+" ")
		if isRule && strings.Contains(args, "--comment "+acceptComment+" ") {
			own = append(own, strings.Fields(args))
		}
	}
	return own, nil
}

// accepted says whether every FORWARD chain of the family has our accepts, and no others of ours. That of nftables is
// listed again once changes is another number than before, and the legacy one each time.
func (f *firewall) accepted(family plan.Family, changes uint64) (bool, error) {
	all, err := f.accepts.backends(family)
	if err != nil {
		return false, err
	}
	for _, b := range all {
		accepted, known := f.accepts.known(family, changes)
		if b.legacy || !known {
			if accepted, err = accepting(b); err != nil {
				return false, err
			}
		}
		if !b.legacy {
			f.accepts.note(family, seenAccepts{changes, accepted})
		}
		if !accepted {
			return false, nil
		}
	}
	return true, nil
}

func (a *accepts) known(f plan.Family, changes uint64) (accepted, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen, ok := a.seen[f]
	return seen.accepted, ok && seen.changes == changes
}

func (a *accepts) note(f plan.Family, seen seenAccepts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[plan.Family]seenAccepts{}
	}
	a.seen[f] = seen
}

// accepting says whether a FORWARD chain has our accepts, and no others of ours.
func accepting(b backend) (bool, error) {
	own, err := ownAccepts(b)
	if err != nil {
		return false, err
	}
	for _, accept := range acceptRules() {
		if !slices.ContainsFunc(own, func(o []string) bool { return slices.Equal(o, accept) }) {
			return false, nil
		}
	}
	return len(own) <= len(acceptRules()), nil
}

// insertAccepts removes what an earlier version accepted.
func (f *firewall) insertAccepts(family plan.Family) error {
	all, err := f.accepts.backends(family)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		for _, accept := range acceptRules() {
			errs = append(errs, b.InsertUnique(filterTable, forwardChain, 1, accept...))
		}
		own, err := ownAccepts(b)
		errs = append(errs, err)
		kept := map[string]bool{}
		for _, o := range own {
			wanted := slices.ContainsFunc(acceptRules(), func(accept []string) bool { return slices.Equal(o, accept) })
			if text := strings.Join(o, " "); !wanted || kept[text] {
				errs = append(errs, b.Delete(filterTable, forwardChain, o...))
			} else {
				kept[text] = true
			}
		}
	}
	return errors.Join(errs...)
}

func (f *firewall) deleteAccepts(family plan.Family) error {
	all, err := f.accepts.backends(family)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		own, err := ownAccepts(b)
		errs = append(errs, err)
		for _, o := range own {
			errs = append(errs, b.Delete(filterTable, forwardChain, o...))
		}
	}
	return errors.Join(errs...)
}
