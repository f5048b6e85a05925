// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/netfacts"
)

// publicAddresses resolves the sources that a gateway node's annotation lists. Names are asked for anew
// after a while; a source that fails keeps its last answer.
type publicAddresses struct {
	annotation string
	at         time.Time
	found      map[string][]v1alpha1.EndpointAddress // by source
}

const (
	publicEvery   = time.Minute
	publicTimeout = 2 * time.Second
)

// resolver asks for public addresses in a goroutine of its own: no name server keeps the node's network waiting.
type resolver struct {
	annotations latest[string]
	found       atomic.Pointer[[]v1alpha1.EndpointAddress]
}

func newResolver() *resolver { return &resolver{annotations: newLatest[string]()} }

// addresses returns the newest answer; false before the first.
func (r *resolver) addresses() ([]v1alpha1.EndpointAddress, bool) {
	if found := r.found.Load(); found != nil {
		return *found, true
	}
	return nil, false
}

// run asks for the sources of the newest annotation, at once and then every publicEvery, until the context
// ends.
func (r *resolver) run(ctx context.Context, l lookups, failed func(error)) {
	tick := time.NewTicker(publicEvery)
	defer tick.Stop()
	var public publicAddresses
	var annotation string
	asked := false
	for {
		select {
		case <-ctx.Done():
			return
		case annotation = <-r.annotations:
			asked = true
		case <-tick.C:
		}
		if !asked {
			continue
		}
		if err := public.resolve(ctx, annotation, l, time.Now()); err != nil && ctx.Err() == nil {
			failed(err)
		}
		found := public.addresses()
		r.found.Store(&found)
	}
}

// lookups are where sources are asked for.
type lookups interface {
	// LoadBalancer returns where a Service of Sealane's namespace is reached from outside: addresses, and names of hosts.
	LoadBalancer(ctx context.Context, service string) ([]string, error)
}

// sources of the annotation, in its order.
func (p *publicAddresses) sources() []string {
	return netfacts.PublicSources(p.annotation)
}

// addresses found, in the annotation's order.
func (p *publicAddresses) addresses() []v1alpha1.EndpointAddress {
	var out []v1alpha1.EndpointAddress
	for _, s := range p.sources() {
		out = append(out, p.found[s]...)
	}
	return out
}

// resolve asks the sources of an annotation, if it is another or the answers are old.
func (p *publicAddresses) resolve(ctx context.Context, annotation string, l lookups, now time.Time) error {
	if annotation == p.annotation && now.Sub(p.at) < publicEvery/2 {
		return nil
	}
	p.annotation, p.at = annotation, now
	old := p.found
	p.found = map[string][]v1alpha1.EndpointAddress{}
	var errs []error
	for _, s := range p.sources() {
		found, err := resolveSource(ctx, s, l)
		if err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: source %q: %w", v1alpha1.AnnotationPublicIP, s, err))
			found = old[s]
		}
		p.found[s] = found
	}
	return errors.Join(errs...)
}

// balanced returns the addresses of a load balancer, of which some clouds say only the name.
func balanced(ctx context.Context, service string, l lookups) ([]string, error) {
	at, err := l.LoadBalancer(ctx, service)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, text := range at {
		if _, err := netip.ParseAddr(text); err == nil {
			out = append(out, text)
			continue
		}
		found, err := net.DefaultResolver.LookupHost(ctx, text)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("expected an address of Service %s/%s in its status, found none: its load balancer is not "+
			"ready, or the cluster has nobody who makes one", v1alpha1.Namespace, service)
	}
	return out, nil
}

func resolveSource(ctx context.Context, source string, l lookups) ([]v1alpha1.EndpointAddress, error) {
	ctx, cancel := context.WithTimeout(ctx, publicTimeout)
	defer cancel()
	kind, value, _ := strings.Cut(source, ":")
	var texts []string
	var err error
	addressType := v1alpha1.AddressPublic
	switch kind {
	case "ipv4", "ipv6":
		texts = []string{value}
	case "dns":
		texts, err = net.DefaultResolver.LookupHost(ctx, value)
	case "lb":
		addressType = v1alpha1.AddressLoadBalancer
		texts, err = balanced(ctx, value, l)
	default:
		return nil, errors.New(`is none of "ipv4:", "ipv6:", "dns:", "lb:"`)
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(texts)
	var out []v1alpha1.EndpointAddress
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		if kind == "ipv4" && !a.Is4() || kind == "ipv6" && !a.Is6() {
			return nil, errors.New("the address is of the other family")
		}
		out = append(out, v1alpha1.EndpointAddress{Type: addressType, IP: a.Unmap().WithZone("").String()})
	}
	return out, nil
}
