// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sealane-io/sealane/dataplane/plan"
)

// Drops are the packets that a chain of ours has dropped since its rules were last changed.
type Drops struct {
	Family  plan.Family
	Chain   string
	Packets uint64
}

// Drops of all chains that may drop something, by family and name. The elements of sets and maps are not read, so it
// costs the same however many there are.
func (k *Kernel) Drops(ctx context.Context) ([]Drops, error) {
	var out []Drops
	var errs []error
	for _, f := range k.families {
		text, err := k.firewall.list(ctx, "--terse", "list", "table", f.String(), plan.TableName)
		if err == nil && text != nil {
			var drops []Drops
			drops, err = parseDrops(f, text)
			out = append(out, drops...)
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// parseDrops adds up the counters of the rules that end in a drop.
func parseDrops(f plan.Family, text []byte) ([]Drops, error) {
	var list struct {
		Objects []struct {
			Rule *struct {
				Chain       string                       `json:"chain"`
				Expressions []map[string]json.RawMessage `json:"expr"`
			} `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("understand the counters of nft's table %s %s: %w", f, plan.TableName, err)
	}
	dropped := map[string]uint64{}
	for _, o := range list.Objects {
		if o.Rule == nil {
			continue
		}
		var counter struct {
			Packets uint64 `json:"packets"`
		}
		drops := false
		for _, e := range o.Rule.Expressions {
			if raw, ok := e["counter"]; ok {
				if err := json.Unmarshal(raw, &counter); err != nil {
					return nil, fmt.Errorf("understand a counter of chain %s: %w", o.Rule.Chain, err)
				}
			}
			if _, ok := e["drop"]; ok {
				drops = true
			}
		}
		if drops {
			dropped[o.Rule.Chain] += counter.Packets
		}
	}
	out := make([]Drops, 0, len(dropped))
	for chain, packets := range dropped {
		out = append(out, Drops{Family: f, Chain: chain, Packets: packets})
	}
	slices.SortFunc(out, func(a, b Drops) int { return cmp.Compare(a.Chain, b.Chain) })
	return out, nil
}
