// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
	"github.com/sealane-io/sealane/e2e/suite"
	"github.com/sealane-io/sealane/propagation"
)

// churnOf is how many services come and go, and how often one does.
func churnOf() (services, steps int) {
	switch {
	case suite.Thorough():
		return 200, 400
	case suite.Brief():
		return 60, 120
	}
	return 120, 250
}

var churnSeed = flag.Uint64("seed", 0, "of the random order in TestManyServicesComeAndGo; 0 takes another each time")

// churn is what a test did to many services.
type churn struct {
	suite.Namespace
	random   *rand.Rand
	services int
	// exported and backends of each service in each cluster.
	exported map[string]map[string]bool
	backends map[string]map[string][]string
}

// newChurn makes so many services, that nobody exports.
func newChurn(t *testing.T, services int) *churn {
	t.Helper()
	seed := cmp.Or(*churnSeed, uint64(time.Now().UnixNano()))
	t.Logf("again with -args -seed=%d", seed)
	c := &churn{
		Namespace: suite.NewNamespace(t), random: rand.New(rand.NewPCG(seed, 0)), services: services,
		exported: map[string]map[string]bool{}, backends: map[string]map[string][]string{},
	}
	c.prepare()
	return c
}

// TestManyServicesComeAndGo exports and unexports in random order, scales, and kills agents and the controller;
// at rest every member has what the rules say, and nothing else.
func TestManyServicesComeAndGo(t *testing.T) {
	services, steps := churnOf()
	c := newChurn(t, services)
	begin := time.Now()
	for step := range steps {
		switch {
		case step%100 == 50:
			c.killAgent(suite.Members()[c.random.IntN(len(suite.Members()))])
		case step%250 == 200:
			c.killController()
		case c.random.IntN(3) == 0:
			c.scale()
		default:
			c.toggle()
		}
	}
	t.Logf("%d steps in %s", steps, time.Since(begin))
	begin = time.Now()
	for _, cluster := range suite.Members() {
		c.atRest(cluster)
	}
	t.Logf("at rest after %s", time.Since(begin))
	for _, cluster := range suite.Members() {
		all := client.InNamespace(c.Name)
		if err := c.API(cluster).DeleteAllOf(t.Context(), &mcs.ServiceExport{}, all); err != nil {
			t.Fatal(err)
		}
		c.exported[cluster] = map[string]bool{}
	}
	for _, cluster := range suite.Members() {
		c.atRest(cluster)
	}
}

// each does something with each service of each cluster.
func (c *churn) each(do func(cluster, name string)) {
	for _, cluster := range suite.Members() {
		for _, name := range slices.Sorted(maps.Keys(c.backends[cluster])) {
			do(cluster, name)
		}
	}
}

// TestManyEndpointsChange of services that all are exported, faster than each is told on its own, while agents and the
// controller are killed, and deltas are deleted. At rest every member has the last of them, also in its DNS.
func TestManyEndpointsChange(t *testing.T) {
	c, pods := newChurn(t, 40), newNamed(t)
	c.each(func(cluster, name string) {
		c.toggleOne(cluster, name)
		c.scaleOne(cluster, name, 1)
	})
	rest := func() {
		t.Helper()
		begin := time.Now()
		for _, cluster := range suite.Members() {
			c.atRest(cluster)
		}
		pods.atRest()
		t.Logf("at rest after %s", time.Since(begin))
	}
	rest()
	for round := range 3 {
		c.each(func(cluster, name string) { c.scaleOne(cluster, name, 1+c.random.IntN(3)) })
		pods.replace(1 + round%2)
		switch round {
		case 0:
			c.killController()
		case 1:
			for _, cluster := range suite.Members() {
				c.killAgent(cluster)
			}
		}
	}
	rest()
	c.hadDeltas()
	for _, cluster := range suite.Members() {
		delta := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeltaName(0)}}
		if err := c.API(cluster).Delete(t.Context(), delta); err != nil {
			t.Error(err)
		}
	}
	c.each(func(cluster, name string) { c.scaleOne(cluster, name, 1) })
	pods.replace(2)
	rest()
	c.hadDeltas()
}

// named is a headless web in c2 whose backends have host names, as those of a StatefulSet.
type named struct {
	suite.Namespace
	addresses []string
	replaced  int
}

func newNamed(t *testing.T) *named {
	t.Helper()
	p := &named{Namespace: suite.NewNamespace(t)}
	p.Serve("c2", suite.Headless)
	p.Export("c2")
	p.replace(2)
	return p
}

// replace all backends by so many others.
func (p *named) replace(backends int) {
	p.Helper()
	p.addresses, p.replaced = nil, p.replaced+1
	var list []discoveryv1.Endpoint
	for n := range backends {
		host, ip := fmt.Sprintf("web-%d", n), fmt.Sprintf("10.9.1.%d", 200+2*p.replaced+n) // no pod's
		p.addresses = append(p.addresses, ip)
		list = append(list, discoveryv1.Endpoint{Addresses: []string{ip}, Hostname: &host})
	}
	p.Backends("c2", list...)
}

// atRest waits until each name of web has the last addresses.
func (p *named) atRest() {
	p.Helper()
	var targets []string
	for n, ip := range p.addresses {
		host := p.DNSName(fmt.Sprintf("web-%d", n), "c2")
		suite.Resolves(p.T, "c1", host, "A", ip)
		targets = append(targets, fmt.Sprintf("0 100 8080 %s.", host))
	}
	suite.Resolves(p.T, "c1", p.DNSName(), "A", p.addresses...)
	suite.Resolves(p.T, "c1", p.DNSName("c2"), "A", p.addresses...)
	suite.Resolves(p.T, "c1", p.DNSName("_http", "_tcp"), "SRV", targets...)
}

// hadDeltas checks that so many changes were told in deltas, and that each member has those that are listed, as Karmada
// has their Works.
func (c *churn) hadDeltas() {
	c.Helper()
	for _, cluster := range suite.Members() {
		own := &v1alpha1.Bundle{}
		if err := c.API(cluster).Get(c.Context(), client.ObjectKey{Name: v1alpha1.BundleName(0)}, own); err != nil {
			c.Fatal(err)
		}
		if own.Spec.Deltas == 0 {
			c.Errorf("%s: nothing was told in deltas", cluster)
		}
		for n := range own.Spec.Deltas {
			work := &workv1alpha1.Work{}
			err := c.API(lab.ContextKarmada).Get(c.Context(), propagation.DeltaKey(cluster, n), work)
			if err != nil || work.Labels[propagation.LabelDelta] != strconv.Itoa(int(n)) {
				c.Errorf("%s: the Work of Bundle %d of deltas has labels %v, %v", cluster, n, work.Labels, err)
			}
			delta := &v1alpha1.Bundle{}
			if err := c.API(cluster).Get(c.Context(), client.ObjectKey{Name: v1alpha1.DeltaName(n)}, delta); err != nil {
				c.Errorf("%s: %d Bundles of deltas are listed: %v", cluster, own.Spec.Deltas, err)
			} else {
				c.Logf("%s: %s has %d imports, revision %d", cluster, delta.Name, len(delta.Spec.Imports), delta.Spec.Revision)
			}
		}
	}
}

// prepare makes every service in one or two clusters.
func (c *churn) prepare() {
	c.Helper()
	for _, cluster := range suite.Members() {
		c.exported[cluster], c.backends[cluster] = map[string]bool{}, map[string][]string{}
	}
	var making errgroup.Group
	making.SetLimit(8)
	for n := range c.services {
		name := fmt.Sprintf("churn-%03d", n)
		for _, at := range c.random.Perm(len(suite.Members()))[:1+c.random.IntN(2)] {
			cluster := suite.Members()[at]
			c.backends[cluster][name] = nil
			making.Go(func() error { return c.make(cluster, name) })
		}
	}
	if err := making.Wait(); err != nil {
		c.Fatal(err)
	}
}

// make makes a service without backends in a cluster.
func (c *churn) make(cluster, name string) error {
	web := suite.Service()
	web.Name, web.Namespace = name, c.Name
	slice := suite.EndpointSlice(web)
	slice.Namespace = c.Name
	for _, o := range []client.Object{web, slice} {
		if err := c.API(cluster).Create(c.Context(), o); err != nil {
			return fmt.Errorf("%s in %s: %w", name, cluster, err)
		}
	}
	return nil
}

// some picks a service of a cluster.
func (c *churn) some() (cluster, name string) {
	cluster = suite.Members()[c.random.IntN(len(suite.Members()))]
	names := slices.Sorted(maps.Keys(c.backends[cluster]))
	return cluster, names[c.random.IntN(len(names))]
}

func (c *churn) toggle() {
	c.Helper()
	c.toggleOne(c.some())
}

func (c *churn) toggleOne(cluster, name string) {
	c.Helper()
	export := &mcs.ServiceExport{ObjectMeta: suite.Named(name)}
	if c.exported[cluster][name] {
		c.Delete(cluster, export)
	} else {
		c.Create(cluster, export)
	}
	c.exported[cluster][name] = !c.exported[cluster][name]
}

func (c *churn) scale() {
	c.Helper()
	cluster, name := c.some()
	c.scaleOne(cluster, name, c.random.IntN(4))
}

func (c *churn) scaleOne(cluster, name string, backends int) {
	c.Helper()
	var addresses []string
	var list []discoveryv1.Endpoint
	for n := range backends {
		// Addresses that no pod of the lab gets.
		ip := fmt.Sprintf("10.%s.0.%d", map[string]string{"c1": "8", "c2": "9", "c3": "10"}[cluster],
			100+10*n+c.random.IntN(10))
		addresses = append(addresses, ip)
		list = append(list, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	suite.Update(c.Namespace, cluster, &discoveryv1.EndpointSlice{ObjectMeta: suite.Named(name)},
		func(s *discoveryv1.EndpointSlice) { s.Endpoints = list })
	c.backends[cluster][name] = addresses
}

func (c *churn) killAgent(cluster string) {
	c.Helper()
	pods := []client.DeleteAllOfOption{
		client.InNamespace("sealane-system"), client.MatchingLabels{"app.kubernetes.io/name": "sealane-cluster-agent"},
		client.GracePeriodSeconds(0),
	}
	if err := c.API(cluster).DeleteAllOf(c.Context(), &corev1.Pod{}, pods...); err != nil {
		c.Fatal(err)
	}
}

func (c *churn) killController() {
	c.Helper()
	if err := suite.Lab().KillProcess(c.Context(), "sealane-controller"); err != nil {
		c.Fatal(err)
	}
	if err := suite.Lab().StartProcess("sealane-controller"); err != nil {
		c.Fatal(err)
	}
}

// model is what a member should have of each service: its exporters, and the endpoints of each of those that
// serve. It is the rule of the choice of clusters in a few lines.
func (c *churn) model(importer string) []string {
	want := []string{}
	for n := range c.services {
		name := fmt.Sprintf("churn-%03d", n)
		var exporters, serving []string
		for _, cluster := range suite.Members() {
			if c.exported[cluster][name] {
				exporters = append(exporters, cluster)
				if len(c.backends[cluster][name]) > 0 {
					serving = append(serving, cluster)
				}
			}
		}
		if slices.Contains(serving, importer) {
			serving = []string{importer}
		}
		if len(exporters) == 0 {
			continue
		}
		var lists []string
		for _, cluster := range serving {
			lists = append(lists, cluster+"="+strings.Join(slices.Sorted(slices.Values(c.backends[cluster][name])), ","))
		}
		want = append(want, fmt.Sprintf("%s from %v: %v", name, exporters, lists))
	}
	return want
}

// observed is the same as found in the member.
func (c *churn) observed(ctx context.Context, cluster string) ([]string, error) {
	imports, slicesFound := &mcs.ServiceImportList{}, &discoveryv1.EndpointSliceList{}
	a, here := c.API(cluster), client.InNamespace(c.Name)
	if err := a.List(ctx, imports, here); err != nil {
		return nil, err
	}
	if err := a.List(ctx, slicesFound, here, client.MatchingLabels{discoveryv1.LabelManagedBy: "sealane.io"}); err != nil {
		return nil, err
	}
	byService := map[string]map[string][]string{}
	for _, s := range slicesFound.Items {
		name, source := s.Labels[mcs.LabelServiceName], s.Labels[mcs.LabelSourceCluster]
		if byService[name] == nil {
			byService[name] = map[string][]string{}
		}
		for _, e := range s.Endpoints {
			byService[name][source] = append(byService[name][source], e.Addresses[0])
		}
	}
	found := []string{}
	for _, i := range imports.Items {
		var exporters, lists []string
		for _, status := range i.Status.Clusters {
			exporters = append(exporters, status.Cluster)
		}
		for _, source := range slices.Sorted(maps.Keys(byService[i.Name])) {
			lists = append(lists, source+"="+strings.Join(slices.Sorted(slices.Values(byService[i.Name][source])), ","))
		}
		delete(byService, i.Name)
		found = append(found, fmt.Sprintf("%s from %v: %v", i.Name, exporters, lists))
	}
	for name := range byService {
		found = append(found, name+" has EndpointSlices and no ServiceImport")
	}
	slices.Sort(found)
	return found, nil
}

// atRest waits until a member has what it should.
func (c *churn) atRest(cluster string) {
	c.Helper()
	want := c.model(cluster)
	suite.Eventually(c.T, suite.Patience, func(ctx context.Context) error {
		found, err := c.observed(ctx, cluster)
		if err != nil || slices.Equal(found, want) {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(found, s) })
		extra := slices.DeleteFunc(slices.Clone(found), func(s string) bool { return slices.Contains(want, s) })
		return fmt.Errorf("%s: %d expected and not found, %d found and not expected:\n%s\n%s", cluster,
			len(missing), len(extra),
			strings.Join(missing, "\n"), strings.Join(extra, "\n"))
	})
	// The importers may know before the exporter does.
	suite.Eventually(c.T, suite.Patience, func(ctx context.Context) error {
		exports := &mcs.ServiceExportList{}
		if err := c.API(cluster).List(ctx, exports, client.InNamespace(c.Name)); err != nil {
			return err
		}
		for _, e := range exports.Items {
			if !meta.IsStatusConditionTrue(e.Status.Conditions, string(mcs.ServiceExportConditionReady)) {
				return fmt.Errorf("%s: %s: expected Ready, found %+v", cluster, e.Name, e.Status.Conditions)
			}
		}
		return nil
	})
	services := &corev1.ServiceList{}
	if err := c.API(cluster).List(c.Context(), services, client.InNamespace(c.Name)); err != nil {
		c.Fatal(err)
	}
	derived := 0
	for _, s := range services.Items {
		if metav1.HasAnnotation(s.ObjectMeta, "sealane.io/orphaned-at") || !strings.HasPrefix(s.Name, "sl-") {
			continue
		}
		derived++
	}
	if derived != len(want) {
		c.Errorf("%s: expected a derived Service for each of %d imports, found %d", cluster, len(want), derived)
	}
}
