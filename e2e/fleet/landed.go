// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// landed takes note of an EndpointSlice that a site's agent has written, or deleted.
func (f *Fleet) landed(s *site, slice *discoveryv1.EndpointSlice, deleted bool, now time.Time) {
	addresses := addressesIn(slice)
	if deleted {
		addresses = nil
	}
	f.Tally.landed(s.name, addresses, now)
	if i, ok := s.size.index(slice.Namespace, v1alpha1.ImportOfSlice(slice)); ok {
		f.guard.sliced(s, i, slice.Name, len(addresses))
	}
}

func addressesIn(slice *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range slice.Endpoints {
		out = append(out, e.Addresses...)
	}
	return out
}

// complete compares the EndpointSlices of a site with the pods of the fleet.
func (s *site) complete(ctx context.Context) error {
	if s.silent() {
		return nil
	}
	var list discoveryv1.EndpointSliceList
	if err := s.objects.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	got := map[int][]string{}
	for k := range list.Items {
		if i, ok := s.size.index(list.Items[k].Namespace, v1alpha1.ImportOfSlice(&list.Items[k])); ok {
			got[i] = append(got[i], addressesIn(&list.Items[k])...)
		}
	}
	for i := range s.size.Services {
		want, known := s.wanted(i)
		slices.Sort(got[i])
		if known && !slices.Equal(got[i], want) {
			namespace, name := s.size.service(i)
			return fmt.Errorf("the EndpointSlices of %s/%s have %v, not %v", namespace, name, got[i], want)
		}
	}
	return nil
}

// wanted are the addresses that a service has in a site: those of its own pods, or of all others where it has none.
// What Karmada does not reach is not known.
func (s *site) wanted(i int) (addresses []string, known bool) {
	namespace, _ := s.size.service(i)
	if !s.has[namespace] || !s.f.joined(s.number) {
		return nil, true
	}
	if own := s.addresses(i); len(own) > 0 {
		return own, true
	}
	for _, n := range s.size.exporters(i) {
		m := s.f.members[s.size.cluster(n)]
		if m.silent() {
			return nil, false
		}
		if s.f.joined(n) {
			addresses = append(addresses, m.addresses(i)...)
		}
	}
	slices.Sort(addresses)
	return addresses, true
}

// Answers asks the DNS server of each site for every service that it imports.
func (f *Fleet) Answers(ctx context.Context) error {
	for _, s := range f.sites {
		for i := range f.Size.Services {
			if want, known := s.wanted(i); !known || len(want) == 0 {
				continue
			}
			if err := s.asked(ctx, i); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// asked asks for the one address of a service, for as long as the DNS server may be behind.
func (s *site) asked(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	namespace, name := s.size.service(i)
	query := new(dns.Msg).SetQuestion(name+"."+namespace+".svc.clusterset.local.", dns.TypeA)
	for {
		answer, err := dns.ExchangeContext(ctx, query, s.server)
		if err == nil && len(answer.Answer) != 1 {
			err = fmt.Errorf("%s, with %d records and not 1", dns.RcodeToString[answer.Rcode], len(answer.Answer))
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("ask the DNS server for %s: %w", query.Question[0].Name, err), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
