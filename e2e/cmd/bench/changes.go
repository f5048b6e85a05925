// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
)

// changesNamespace has the many services in both clusters.
const changesNamespace = "changes"

// changes is what it takes to carry one changed endpoint to the other cluster, beside many services.
type changes struct {
	Exporter, Importer string
	Services, Count    int
	// Boot is how long all services took from the first ServiceExport.
	Boot time.Duration
	// Export is what one export cost until all were imported and nothing moved any more.
	Export cost
	Delay  quantiles
	// Writes are those per change.
	Writes []writes
	// Memory is what the imports added to each process.
	Memory []memoryGrowth
}

// memoryGrowth is a process before and after the services, in kilobytes of resident memory.
type memoryGrowth struct{ Before, After process }

// PerThousand is how much a thousand services take.
func (c changes) PerThousand(g memoryGrowth) int {
	return (g.After.RSS - g.Before.RSS) * 1000 / c.Services
}

// crowd is many services whose endpoints nobody but this program changes.
type crowd struct {
	from, to client.WithWatch
	pods     netip.Addr
	services int
	pace     *pacer
}

// endpointChanges exports many services from a cluster, and then changes one endpoint at a time.
func endpointChanges(ctx context.Context, l *lab.Lab, exporter lab.Cluster, services, count int) (*changes, error) {
	importer := other(l, exporter)
	pods, err := netip.ParsePrefix(exporter.PodCIDRs[0])
	if err != nil {
		return nil, fmt.Errorf("pods of %s: %w", exporter.Name, err)
	}
	c := &crowd{pods: pods.Addr(), services: services, pace: newPacer()}
	if c.from, err = apiOf(l, exporter.Name); err != nil {
		return nil, err
	}
	if c.to, err = apiOf(l, importer.Name); err != nil {
		return nil, err
	}
	result := &changes{Exporter: exporter.Name, Importer: importer.Name, Services: services, Count: count}
	before, err := memory(l, nil)
	if err != nil {
		return nil, err
	}
	none, err := writesOf(ctx, l)
	if err != nil {
		return nil, err
	}
	idle := processorTimes(l)
	defer c.remove(ctx)
	begin := time.Now()
	if err := c.export(ctx); err != nil {
		return nil, err
	}
	result.Boot = time.Since(begin).Round(time.Second)
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	after, err := memory(l, nil)
	if err != nil {
		return nil, err
	}
	for _, row := range joinMemory(before, nil, after) {
		result.Memory = append(result.Memory, memoryGrowth{Before: row.Idle, After: row.Settled})
	}
	old, err := writesOf(ctx, l)
	if err != nil {
		return nil, err
	}
	result.Export = cost{
		Writes: writesPer(none, old, services), Processor: processorTimePer(idle, processorTimes(l), services),
	}
	delays, err := c.change(ctx, count)
	if err != nil {
		return nil, err
	}
	result.Delay = quantilesOf(delays)
	now, err := writesOf(ctx, l)
	if err != nil {
		return nil, err
	}
	result.Writes = writesPer(old, now, count)
	return result, nil
}

func crowdName(i int) string { return fmt.Sprintf("crowd-%d", i) }

// address of a service's one endpoint, in its n-th version: one of the worker's pods, which services share.
func (c *crowd) address(i, n int) string {
	const first, count = 20, 200
	b := c.pods.As4()
	b[2], b[3] = 1, byte(first+(2*i+n%2)%count)
	return netip.AddrFrom4(b).String()
}

// export creates and exports all services, and waits until the importer has an EndpointSlice of each.
func (c *crowd) export(ctx context.Context) error {
	for _, api := range []client.Client{c.from, c.to} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: changesNamespace}}
		if err := api.Create(ctx, ns); err != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(mostAtOnce)
	for i := range c.services {
		g.Go(func() error { return c.create(inner, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return c.waitImported(ctx)
}

// waitImported waits as long as the number of imports grows: how fast it does is the machine's matter.
func (c *crowd) waitImported(ctx context.Context) error {
	const standstill = 5 * time.Minute
	for last, since := -1, time.Now(); ; {
		list := &discoveryv1.EndpointSliceList{}
		err := c.pace.do(ctx, func(ctx context.Context) error {
			return c.to.List(ctx, list, client.InNamespace(changesNamespace), client.HasLabels{v1alpha1.LabelImport})
		})
		if err != nil {
			return fmt.Errorf("count the imports: %w", err)
		}
		switch found := len(list.Items); {
		case found >= c.services:
			return nil
		case found != last:
			last, since = found, time.Now()
		case time.Since(since) > standstill:
			return fmt.Errorf("%d of %d services are imported, and no more for %s", found, c.services, standstill)
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (c *crowd) create(ctx context.Context, i int) error {
	name := metav1.ObjectMeta{Name: crowdName(i), Namespace: changesNamespace}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  *name.DeepCopy(),
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   c.endpoints(i, 0),
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP),
			Port: ptr.To[int32](8080)}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: name.Name,
		discoveryv1.LabelManagedBy: "bench.sealane.io"}
	for _, o := range []client.Object{
		&corev1.Service{ObjectMeta: name, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
		slice,
		&mcsv1alpha1.ServiceExport{ObjectMeta: name},
	} {
		// A request that timed out may have been carried out.
		err := c.pace.do(ctx, func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(c.from.Create(ctx, o.DeepCopyObject().(client.Object)))
		})
		if err != nil {
			return fmt.Errorf("create %T %s: %w", o, name.Name, err)
		}
	}
	return nil
}

func (c *crowd) endpoints(i, n int) []discoveryv1.Endpoint {
	return []discoveryv1.Endpoint{{Addresses: []string{c.address(i, n)},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}
}

// change replaces one endpoint after the other, and times each until the importer has it.
func (c *crowd) change(ctx context.Context, count int) ([]time.Duration, error) {
	events, err := c.to.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(changesNamespace),
		client.HasLabels{v1alpha1.LabelImport})
	if err != nil {
		return nil, fmt.Errorf("watch endpoint slices: %w", err)
	}
	defer events.Stop()
	delays := make([]time.Duration, 0, count)
	for n := range count {
		const stride = 37 // so that neighbours in time are not neighbours in a Bundle
		i := n * stride % c.services
		patch, err := json.Marshal(map[string]any{"endpoints": c.endpoints(i, 1+n/c.services)})
		if err != nil {
			return nil, fmt.Errorf("change an endpoint: %w", err)
		}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: crowdName(i), Namespace: changesNamespace}}
		begin := time.Now()
		err = c.pace.do(ctx, func(ctx context.Context) error {
			return c.from.Patch(ctx, slice, client.RawPatch(types.MergePatchType, patch))
		})
		if err != nil {
			return nil, fmt.Errorf("change an endpoint: %w", err)
		}
		if err := arrival(ctx, events, crowdName(i), c.address(i, 1+n/c.services)); err != nil {
			return nil, fmt.Errorf("change %d: %w", n+1, err)
		}
		delays = append(delays, time.Since(begin))
		if err := wait(ctx, pause/4); err != nil {
			return nil, err
		}
	}
	return delays, nil
}

// arrival waits for an EndpointSlice of an import with an address.
func arrival(ctx context.Context, events watch.Interface, name, address string) error {
	deadline := time.After(time.Minute)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return fmt.Errorf("%s of %s did not arrive within a minute", address, name)
		case e, ok := <-events.ResultChan():
			if !ok {
				return fmt.Errorf("the watch ended before %s of %s arrived", address, name)
			}
			s, isSlice := e.Object.(*discoveryv1.EndpointSlice)
			if isSlice && s.Labels[v1alpha1.LabelImport] == name && slices.ContainsFunc(s.Endpoints,
				func(e discoveryv1.Endpoint) bool {
					return slices.Contains(e.Addresses, address)
				}) {
				return nil
			}
		}
	}
}

// remove begins to delete it all. What is left goes with the lab.
func (c *crowd) remove(ctx context.Context) {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, api := range []client.Client{c.from, c.to} {
		_ = api.Delete(clean, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: changesNamespace}})
	}
}
