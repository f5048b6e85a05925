// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// gatewayNode is the one node of a site.
const gatewayNode = "gateway"

// siteNice has the API servers of sites let the broker and its API server go first: clusters have machines of their
// own.
const siteNice = 10

// site is a member that is a cluster as far as Sealane's control plane goes: an API server of its own, the real cluster
// agent and the real DNS server. Who else writes there is played: Karmada, the node agent of the gateway, and the
// controllers that keep EndpointSlices.
type site struct {
	*member
	f          *Fleet
	name       string
	api        *apiserver.Server
	client     client.Client
	objects    cache.Cache
	agent, dns *process
	// server is where the DNS server answers.
	server string
	// write is poked when pods have changed, gateway when there may be something to report of it.
	write, gateway chan struct{}

	mu sync.Mutex
	// changed are the services whose pods have.
	changed map[int]bool
	// relays by the kind and name of what they carry.
	relays map[string]*relay
}

// StartAgents makes the last members of the fleet real, each with an API server, a cluster agent and a DNS server of
// its own: as many as Size says. It comes before Connect.
func (f *Fleet) StartAgents(ctx context.Context, programs Programs, dir string) error {
	g, inner := errgroup.WithContext(ctx)
	var mu sync.Mutex
	made := map[string]*site{}
	for n := f.Size.Clusters - f.Size.Agents; n < f.Size.Clusters; n++ {
		g.Go(func() error {
			s := &site{f: f, name: f.Size.cluster(n), member: f.members[f.Size.cluster(n)], write: make(chan struct{}, 1),
				gateway: make(chan struct{}, 1), changed: map[int]bool{}, relays: map[string]*relay{}}
			mu.Lock()
			made[s.name] = s
			mu.Unlock()
			if err := s.launch(inner, programs, dir); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		})
	}
	err := g.Wait()
	f.mu.Lock()
	f.sites = made
	f.mu.Unlock()
	if err != nil {
		return err
	}
	for _, s := range made {
		if err := s.run(f.ctx); err != nil { //nolint:contextcheck // it outlives the call, as the fleet does
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// stop ends the processes. What is played has ended before.
func (s *site) stop() {
	for _, p := range []*process{s.agent, s.dns} {
		if p != nil {
			p.Kill()
		}
	}
	if s.api != nil {
		s.api.Stop()
	}
}

func (s *site) launch(ctx context.Context, programs Programs, dir string) error {
	crds, err := apiserver.CRDs() //nolint:contextcheck // it asks the go command
	if err != nil {
		return err
	}
	s.api, err = apiserver.LaunchWith(ctx, apiserver.Options{Services: services(s.number).String(), Nice: siteNice,
		CRDs: []string{crds}})
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		mcs.Install(scheme)); err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	config := *s.api.Config
	config.QPS = -1 // who else writes is not what is measured
	if s.client, err = client.New(&config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy})}
	if s.objects, err = cache.New(&config, cache.Options{Scheme: scheme,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&discoveryv1.EndpointSlice{}: ours}}); err != nil {
		return fmt.Errorf("make a cache: %w", err)
	}
	for _, file := range []string{"namespace", "cluster-agent", "admission", "dns"} {
		if err := createArtifact(ctx, s.client, "artifacts/deploy/"+file+".yaml"); err != nil {
			return err
		}
	}
	if err := s.populate(ctx); err != nil {
		return err
	}
	return s.start(ctx, programs, dir)
}

// createArtifact creates the objects of a file that Sealane is installed with, but for its Deployments: nobody runs
// pods.
func createArtifact(ctx context.Context, c client.Client, file string) error {
	data, err := fs.ReadFile(sealane.Artifacts, file)
	if err != nil {
		return fmt.Errorf("read what is installed: %w", err)
	}
	for _, document := range strings.Split(string(data), "\n---\n") {
		o := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if o.GetKind() == "Deployment" {
			continue
		}
		if err := c.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// creators is how many objects are created at once.
const creators = 8

// populate makes the node, the namespaces, and the Services with their pods.
func (s *site) populate(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gatewayNode, Labels: map[string]string{
		v1alpha1.LabelGateway: "true", corev1.LabelOSStable: string(corev1.Linux)}}}
	node.Spec.PodCIDR, node.Spec.PodCIDRs = s.facts.Networks.PodCIDRs[0], s.facts.Networks.PodCIDRs
	if err := s.client.Create(ctx, node); err != nil {
		return fmt.Errorf("create the node: %w", err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
		Address: s.facts.Endpoints[0].Addresses[0].IP}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := s.client.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("write the status of the node: %w", err)
	}
	for namespace := range s.has {
		if err := s.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return fmt.Errorf("create the namespace %s: %w", namespace, err)
		}
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(creators)
	for i := range s.pods {
		g.Go(func() error {
			namespace, name := s.size.service(i)
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			service.Spec.Selector = map[string]string{"app": name}
			service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}
			if err := s.client.Create(inner, service); err != nil {
				return fmt.Errorf("create the Service %s/%s: %w", namespace, name, err)
			}
			slice := sliceOf(namespace, name)
			slice.Endpoints = s.endpoints(i)
			if err := s.client.Create(inner, slice); err != nil {
				return fmt.Errorf("create the EndpointSlice of %s/%s: %w", namespace, name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// sliceOf is the EndpointSlice of an exported service, as its controller names it, without endpoints.
func sliceOf(namespace, name string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-xyz12", Labels: map[string]string{
			discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP),
			Port: ptr.To(int32(8080))}},
	}
}

// endpoints are the pods of a service.
func (s *site) endpoints(service int) []discoveryv1.Endpoint {
	s.member.mu.Lock()
	defer s.member.mu.Unlock()
	out := []discoveryv1.Endpoint{}
	for k, offset := range s.pods[service] {
		address := at(pods(s.number), offset).String()
		out = append(out, discoveryv1.Endpoint{
			Addresses: []string{address}, NodeName: ptr.To(gatewayNode), Zone: ptr.To(fmt.Sprintf("zone-%d", k%3)),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
				Terminating: ptr.To(false)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("pod-%d", offset)},
		})
	}
	return out
}

// start the agent, with what it is installed with, then export, and start the DNS server.
func (s *site) start(ctx context.Context, programs Programs, dir string) error {
	dir, err := os.MkdirTemp(dir, s.name+"-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return err
	}
	ofAgent, ofDNS := filepath.Join(dir, "agent.kubeconfig"), filepath.Join(dir, "dns.kubeconfig")
	if err := errors.Join(
		writeKubeconfig(ofAgent, s.api.Config.Host, s.api.Config.BearerToken, "sealane-cluster-agent"),
		writeKubeconfig(ofDNS, s.api.Config.Host, s.api.Config.BearerToken, "sealane-dns")); err != nil {
		return err
	}
	if s.agent, err = startProcess(ctx, dir, programs.Agent, "cluster", "--kubeconfig="+ofAgent,
		"--metrics-bind-address="+ports[0], "--health-probe-bind-address="+ports[1]); err != nil {
		return err
	}
	// The agent brings the kinds of the MCS API.
	if err := s.export(ctx); err != nil {
		return err
	}
	_, port, _ := strings.Cut(ports[2], ":")
	corefile := filepath.Join(dir, "Corefile")
	text := fmt.Sprintf(".:%s {\n    bind 127.0.0.1\n    errors\n    ready %s\n    lighthouse {\n        kubeconfig %s\n"+
		"        service %s/sealane-dns\n    }\n}\n", port, ports[3], ofDNS, v1alpha1.Namespace)
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the Corefile: %w", err)
	}
	s.server = ports[2]
	s.dns, err = startProcess(ctx, dir, programs.DNS, "-conf", corefile)
	return err
}

func (s *site) export(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(creators)
	for i := range s.pods {
		g.Go(func() error {
			namespace, name := s.size.service(i)
			export := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			err := wait.PollUntilContextCancel(inner, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				err := s.client.Create(ctx, export)
				if meta.IsNoMatchError(err) {
					select {
					case <-s.agent.done:
						return false, s.agent.ended()
					default:
						return false, nil
					}
				}
				return true, err
			})
			if err != nil {
				return fmt.Errorf("create the ServiceExport %s/%s: %w", namespace, name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// podsChanged has the EndpointSlices of services written.
func (s *site) podsChanged(services ...int) {
	s.mu.Lock()
	for _, i := range services {
		s.changed[i] = true
	}
	s.mu.Unlock()
	poke(s.write)
}

// writers is how many EndpointSlices are written at once. Their controller has five workers.
const writers = 5

// writeSlices writes what has changed.
func (s *site) writeSlices(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.write:
		}
		s.mu.Lock()
		changed := s.changed
		s.changed = map[int]bool{}
		s.mu.Unlock()
		var g errgroup.Group
		g.SetLimit(writers)
		for i := range changed {
			g.Go(func() error {
				namespace, name := s.size.service(i)
				patch, err := json.Marshal(map[string]any{"endpoints": s.endpoints(i)})
				if err != nil {
					return fmt.Errorf("encode endpoints: %w", err)
				}
				return s.client.Patch(ctx, sliceOf(namespace, name), client.RawPatch(types.MergePatchType, patch))
			})
		}
		if err := g.Wait(); err != nil && ctx.Err() == nil {
			s.f.Tally.fail(fmt.Errorf("%s: write EndpointSlices: %w", s.name, err))
		}
	}
}

// reportEvery is how often the node agent of a gateway reports at least.
const reportEvery = 30 * time.Second

// reportGateway is the node agent of the gateway: all its tunnels work.
func (s *site) reportGateway(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	last := v1alpha1.GatewayStatus{}
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-s.gateway:
		case <-tick.C:
			due = true
		}
		if err := s.reportTunnels(ctx, &last, due); err != nil && ctx.Err() == nil {
			s.f.Tally.fail(fmt.Errorf("%s: %w", s.name, err))
		}
	}
}

func (s *site) reportTunnels(ctx context.Context, last *v1alpha1.GatewayStatus, due bool) error {
	gateway, peering := &v1alpha1.Gateway{}, &v1alpha1.Peering{}
	if err := s.objects.Get(ctx, client.ObjectKey{Name: gatewayNode}, gateway); err != nil {
		return client.IgnoreNotFound(err) // the agent makes it
	}
	if err := s.objects.Get(ctx, client.ObjectKey{Name: v1alpha1.PeeringName}, peering); err != nil {
		return client.IgnoreNotFound(err)
	}
	since := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	status := v1alpha1.GatewayStatus{HAState: v1alpha1.GatewayActive, Endpoint: s.facts.Endpoints[0].DeepCopy(),
		Version: "fleet"}
	for _, r := range peering.Spec.RemoteClusters {
		for _, e := range r.Endpoints {
			status.Connections = append(status.Connections, v1alpha1.Connection{Cluster: r.Name, Gateway: e.Gateway,
				Slot: e.Slot, Link: "sl-c0", Status: v1alpha1.ConnectionConnected, Active: true, LastTransitionTime: &since})
		}
	}
	same := slices.EqualFunc(status.Connections, last.Connections, func(a, b v1alpha1.Connection) bool {
		return a.Cluster == b.Cluster && a.Gateway == b.Gateway && a.Slot == b.Slot
	})
	if same && !due && gateway.Status.ReportedAt != nil {
		return nil
	}
	*last = *status.DeepCopy()
	status.ReportedAt = ptr.To(metav1.Now())
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode the Gateway's status: %w", err)
	}
	err = s.client.Status().Patch(ctx, gateway, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the Gateway's status: %w", err)
	}
	return nil
}

// SiteUsage is what a cluster agent and a DNS server have used, on average of the sites; memory is that of the largest.
type SiteUsage struct{ Agent, DNS Used }

// siteUsage reads it.
func (f *Fleet) siteUsage() (out SiteUsage, err error) {
	for _, s := range f.sites {
		for p, to := range map[*process]*Used{s.agent: &out.Agent, s.dns: &out.DNS} {
			u, err := p.used()
			if err != nil {
				return out, err
			}
			to.CPU += u.CPU / time.Duration(len(f.sites))
			to.RSS, to.Peak = max(to.RSS, u.RSS), max(to.Peak, u.Peak)
		}
	}
	return out, nil
}

// AgentErrors are the lines in the logs of cluster agents and DNS servers that tell of an error.
func (f *Fleet) AgentErrors() ([]string, error) {
	var out []string
	for _, s := range f.sites {
		for _, p := range []*process{s.agent, s.dns} {
			lines, err := p.Errors()
			if err != nil {
				return nil, err
			}
			for _, line := range lines {
				out = append(out, s.name+": "+line)
			}
		}
	}
	return out, nil
}
