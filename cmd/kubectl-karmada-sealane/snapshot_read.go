// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/karmada-io/karmada/pkg/util/names"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/version"
)

// source is a kind that a snapshot has of a place.
type source struct {
	kind string
	read func(ctx context.Context, a *api) ([]client.Object, error)
}

// listed are all objects of a kind, or those that options select.
func listed(kind string, list func() client.ObjectList, options ...client.ListOption) source {
	return source{kind, func(ctx context.Context, a *api) ([]client.Object, error) {
		into := list()
		if err := a.List(ctx, into, options...); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
		items, err := meta.ExtractList(into)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
		out := make([]client.Object, 0, len(items))
		for _, item := range items {
			if o, is := item.(client.Object); is {
				out = append(out, o)
			}
		}
		return out, nil
	}}
}

// single are objects of a kind by their names, as far as they exist.
func single(kind string, empty func() client.Object, keys ...client.ObjectKey) source {
	return source{kind, func(ctx context.Context, a *api) ([]client.Object, error) {
		var out []client.Object
		for _, key := range keys {
			o := empty()
			found, err := a.find(ctx, key, o)
			if err != nil {
				return nil, err
			}
			if found {
				out = append(out, o)
			}
		}
		return out, nil
	}}
}

// mcsObjects are those of a kind of the MCS API, in whatever version it is served.
func mcsObjects[T any, P interface {
	*T
	client.Object
}](kind string) source {
	return source{kind, func(ctx context.Context, a *api) ([]client.Object, error) {
		items, err := listMCS[T](ctx, a, kind, "")
		out := make([]client.Object, len(items))
		for i := range items {
			out[i] = P(&items[i])
		}
		return out, err
	}}
}

// karmadaSources are what a snapshot has of the Karmada API: no Secret, and no object of anybody's workloads.
func karmadaSources(members []v1alpha1.Member, shards func(set string) int32) []source {
	ours := client.InNamespace(v1alpha1.Namespace)
	return []source{
		listed("ClusterSet", func() client.ObjectList { return &v1alpha1.ClusterSetList{} }),
		listed("Member", func() client.ObjectList { return &v1alpha1.MemberList{} }),
		listed("Cluster", func() client.ObjectList { return &clusterv1alpha1.ClusterList{} }),
		listed("ServicePolicy", func() client.ObjectList { return &v1alpha1.ServicePolicyList{} }),
		listed("ClusterPropagationPolicy", func() client.ObjectList { return &policyv1alpha1.ClusterPropagationPolicyList{} },
			client.MatchingLabels{labelManagedBy: v1alpha1.ManagedBy}),
		listed("ServiceExport", func() client.ObjectList { return &mcsv1alpha1.ServiceExportList{} }),
		{"ResourceBinding", readBindings},
		{"Work", func(ctx context.Context, a *api) ([]client.Object, error) { return readWorks(ctx, a, members, shards) }},
		listed("DaemonSet", func() client.ObjectList { return &appsv1.DaemonSetList{} }, ours),
		listed("Deployment", func() client.ObjectList { return &appsv1.DeploymentList{} }, ours),
		single("Lease", func() client.Object { return &coordinationv1.Lease{} },
			client.ObjectKey{Namespace: v1alpha1.Namespace, Name: controllerName}),
	}
}

// readWorks reads those of members' Peerings and Bundles, with the halves and the deltas that these list.
func readWorks(ctx context.Context, a *api, members []v1alpha1.Member,
	shards func(set string) int32) ([]client.Object, error) {
	var out []client.Object
	read := func(key client.ObjectKey) (*workv1alpha1.Work, error) {
		work := new(workv1alpha1.Work)
		found, err := a.find(ctx, key, work)
		if err != nil || !found {
			return nil, err
		}
		out = append(out, work)
		return work, nil
	}
	for i := range members {
		m := &members[i]
		peering := client.ObjectKey{Namespace: names.GenerateExecutionSpaceName(m.Name), Name: peeringWork()}
		if _, err := read(peering); err != nil {
			return nil, err
		}
		for shard := range shards(m.Spec.ClusterSet) {
			work, err := read(bundleWork(m.Name, v1alpha1.BundleName(shard)))
			if err != nil {
				return nil, err
			}
			if work == nil {
				continue
			}
			// What does not decode is told of by checkKarmada.
			own, _ := bundleOf(work)
			for _, name := range append(new(scope).halves(&own), deltas(&own)...) {
				if _, err := read(bundleWork(m.Name, name)); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// readBindings reads where Karmada puts ServiceExports.
func readBindings(ctx context.Context, a *api) ([]client.Object, error) {
	bindings, err := a.exportBindings(ctx, "")
	out := make([]client.Object, 0, len(bindings))
	for _, b := range bindings {
		out = append(out, b)
	}
	return out, err
}

// configured are the ConfigMaps of a member that say how its DNS and its Services work.
func configured() []client.ObjectKey {
	var out []client.ObjectKey
	for _, name := range []string{"coredns", "coredns-custom", "kube-dns", "node-local-dns", "rke2-coredns-rke2-coredns",
		"kube-proxy"} {
		out = append(out, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name})
	}
	return out
}

// memberSources are what a snapshot has of a member.
func memberSources() []source {
	system, ours := client.InNamespace(metav1.NamespaceSystem), client.InNamespace(v1alpha1.Namespace)
	endpoints := func() client.ObjectList { return &discoveryv1.EndpointSliceList{} }
	services := func() client.ObjectList { return &corev1.ServiceList{} }
	deployments := func() client.ObjectList { return &appsv1.DeploymentList{} }
	return []source{
		listed("Gateway", func() client.ObjectList { return &v1alpha1.GatewayList{} }),
		listed("Peering", func() client.ObjectList { return &v1alpha1.PeeringList{} }),
		listed("NodeNetwork", func() client.ObjectList { return &v1alpha1.NodeNetworkList{} }),
		listed("NodeSlice", func() client.ObjectList { return &v1alpha1.NodeSliceList{} }),
		listed("GlobalAllocation", func() client.ObjectList { return &v1alpha1.GlobalAllocationList{} }),
		listed("ClusterGlobalEgressIP", func() client.ObjectList { return &v1alpha1.ClusterGlobalEgressIPList{} }),
		listed("Node", func() client.ObjectList { return &corev1.NodeList{} }),
		listed("Namespace", func() client.ObjectList { return &corev1.NamespaceList{} }),
		listed("Pod", func() client.ObjectList { return &corev1.PodList{} }, ours),
		listed("DaemonSet", func() client.ObjectList { return &appsv1.DaemonSetList{} }),
		listed("Deployment", deployments, ours), listed("Deployment", deployments, system),
		listed("Service", services, ours), listed("Service", services, system),
		listed("Service", services, client.HasLabels{v1alpha1.LabelImport}),
		listed("EndpointSlice", endpoints, ours), listed("EndpointSlice", endpoints, system),
		listed("EndpointSlice", endpoints, client.HasLabels{mcsv1beta1.LabelServiceName}),
		single("ConfigMap", func() client.Object { return &corev1.ConfigMap{} }, configured()...),
		mcsObjects[mcsv1beta1.ServiceExport]("ServiceExport"),
		mcsObjects[mcsv1beta1.ServiceImport]("ServiceImport"),
	}
}

// readFrom fills a place. What may not be read, or is not served, is said in unread, and the rest is read all the same.
func (p *place) readFrom(ctx context.Context, a *api, sources []source) {
	p.context, p.api = a.context, a
	if info, err := a.serverVersion(); err == nil {
		p.kubernetes = info.GitVersion
	}
	seen := map[string]bool{}
	for _, s := range sources {
		objects, err := s.read(ctx, a)
		if err != nil {
			why := refusal(err)
			if gone(err) {
				why = "not served"
			}
			p.misses(s.kind, why+": "+err.Error())
			continue
		}
		for _, o := range objects {
			o.SetManagedFields(nil)
			gvk, err := a.GroupVersionKindFor(o)
			if err != nil {
				continue // of our own scheme, it cannot fail
			}
			o.GetObjectKind().SetGroupVersionKind(gvk)
			if key := describe(o); !seen[key] {
				seen[key] = true
				p.objects = append(p.objects, o)
			}
		}
	}
}

func (p *place) misses(kind, why string) {
	if p.unread == nil {
		p.unread = map[string]string{}
	}
	p.unread[kind] = why
}

// snapshot reads the Karmada API, the host's and, in parallel and each within its time, those of the members.
func (o *options) snapshot(ctx context.Context, karmada *api, host *hostCluster, within scope) (*snapshot, error) {
	s := &snapshot{taken: time.Now(), invocation: o.invocation, plugin: version.Version, scheme: karmada.Scheme()}
	var sets v1alpha1.ClusterSetList
	if err := karmada.List(ctx, &sets); err != nil {
		return nil, fmt.Errorf("list clustersets: %w", err)
	}
	members, err := karmada.members(ctx)
	if err != nil {
		return nil, err
	}
	members = slices.DeleteFunc(members, func(m v1alpha1.Member) bool {
		return len(within.clusters) > 0 && !slices.Contains(within.clusters, m.Name)
	})
	shards := (&fleet{clusterSets: sets.Items}).shards
	s.members = make([]place, len(members))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.karmada.readFrom(ctx, karmada, karmadaSources(members, shards)); return nil })
	g.Go(func() error { o.readHost(ctx, host, &s.host); return nil })
	for i := range members {
		s.members[i].name = members[i].Name
		g.Go(func() error { o.readMember(ctx, karmada, &members[i], within, &s.members[i]); return nil })
	}
	return s, g.Wait()
}

// readHost reads where the controller runs, if it is on the cluster that hosts Karmada.
func (o *options) readHost(ctx context.Context, h *hostCluster, into *place) {
	err := h.complete(o)
	var a *api
	if err == nil {
		a, err = o.connect(h.kubeconfig, h.context)
	}
	if err != nil {
		into.misses(everything, "the controller runs elsewhere, or name the cluster that hosts Karmada with --host-context")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*defaultMemberTimeout)
	defer cancel()
	here := client.InNamespace(h.namespace)
	into.readFrom(ctx, a, []source{
		single("Deployment", func() client.Object { return &appsv1.Deployment{} },
			client.ObjectKey{Namespace: h.namespace, Name: controllerName}),
		listed("Pod", func() client.ObjectList { return &corev1.PodList{} }, here,
			client.MatchingLabels{"app.kubernetes.io/name": controllerName}),
	})
}

func (o *options) readMember(ctx context.Context, karmada *api, m *v1alpha1.Member, within scope, into *place) {
	if why := within.silent[m.Name]; why != "" {
		into.context = m.Name
		into.misses(everything, why)
		return
	}
	c, err := within.at[m.Name], error(nil)
	if c == nil {
		asked, cancel := context.WithTimeout(ctx, within.memberTimeout)
		defer cancel()
		c, err = o.member(asked, karmada, m)
	}
	if err != nil {
		into.context = m.Name
		into.misses(everything, refusal(err)+": "+err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 4*within.memberTimeout)
	defer cancel()
	into.readFrom(ctx, c, memberSources())
}

// templates are the ServiceExports on the Karmada API with what Karmada does of them.
func (s *snapshot) templates() []exportTemplate {
	bindings := map[string]*workv1alpha2.ResourceBinding{}
	for _, b := range of[*workv1alpha2.ResourceBinding](&s.karmada) {
		bindings[b.Spec.Resource.Namespace+"/"+b.Spec.Resource.Name] = b
	}
	var out []exportTemplate
	for _, e := range of[*mcsv1alpha1.ServiceExport](&s.karmada) {
		out = append(out, exportTemplate{ServiceExport: *e, binding: bindings[e.Namespace+"/"+e.Name]})
	}
	return out
}
