// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wired by the Corefile of NodeLocal DNSCache, which stands before the cluster's DNS on each node and forwards what is
// outside of the cluster's own domain to the node's own servers.
type wiredNodeLocal struct{}

// errNoAddressesOnNodes is why PTR queries are not forwarded there.
var errNoAddressesOnNodes = errors.New("it forwards names of addresses to the cluster's DNS")

func (wiredNodeLocal) wire(have client.Object, f Forward) (want client.Object, unforwarded, err error) {
	text := dataOf(have)[corefileKey]
	without, err := Remove(text)
	if err != nil {
		return nil, nil, err
	}
	served, err := ServedBy(without)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalidCorefile, err)
	}
	f.Domains = slices.DeleteFunc(slices.Clone(f.Domains), func(domain string) bool { return HasBlock(without, domain) })
	if len(f.Domains) == 0 {
		return withData(have, corefileKey, without), nil, nil
	}
	f.Bind, f.NoAddresses = bindOf(served), errNoAddressesOnNodes
	with, _, err := Add(text, f)
	if err != nil {
		return nil, nil, err
	}
	return withData(have, corefileKey, with), nil, nil
}

// bindOf returns what the first server block that binds to addresses binds to.
func bindOf(served []Served) string {
	for i := range served {
		if len(served[i].Bind) > 0 {
			return strings.Join(served[i].Bind, " ")
		}
	}
	return ""
}

func (wiredNodeLocal) unwire(have client.Object) (client.Object, error) {
	return withoutBlock(have, corefileKey)
}

func (wiredNodeLocal) byHand(have client.Object, f Forward) string {
	if served, err := ServedBy(dataOf(have)[corefileKey]); err == nil {
		f.Bind = bindOf(served)
	}
	return "to its Corefile, outside of other server blocks:\n" + f.byHand(dataOf(have)[corefileKey])
}
