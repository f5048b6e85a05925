// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/globalnet"
)

// globalIP waits until a service's GlobalIngressIP is as wanted, and returns its address.
func (m *member) globalIP(name, reason string, check func(v1alpha1.GlobalIngressIPStatus) error) string {
	m.t.Helper()
	o := &v1alpha1.GlobalIngressIP{}
	m.eventually("the global address of "+name, func(ctx context.Context) error {
		if err := m.Get(ctx, types.NamespacedName{Namespace: "sample", Name: name}, o); err != nil {
			return err
		}
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.GlobalIPAllocated)
		if c == nil {
			return errors.New("no condition yet")
		}
		return errors.Join(expect("reason", c.Reason, reason), check(o.Status))
	})
	return o.Status.IP
}

func backendsOf(want string) func(v1alpha1.GlobalIngressIPStatus) error {
	return func(s v1alpha1.GlobalIngressIPStatus) error { return expect("ports", fmt.Sprint(s.Ports), want) }
}

// told waits until the only Bundle tells of these global addresses, by the names of their services.
func (m *member) told(want map[string]string) {
	m.t.Helper()
	m.eventually("global addresses reported", func(ctx context.Context) error {
		b := &v1alpha1.Bundle{}
		if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.BundleName(0)}, b); err != nil {
			return err
		}
		got := map[string]string{}
		for _, e := range b.Status.Exports {
			got[e.Name] = e.GlobalIP
		}
		return expect("addresses", got, want)
	})
}

// TestGlobalAddresses: an exported service with a ClusterIP has an address of the cluster's block. It keeps it over a
// restart of the agent and a deletion, and nobody gets it when it is not exported any more.
func TestGlobalAddresses(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	peering := m.peering(1)
	slice := m.service("sample", "web", "10.7.0.5", "10.7.0.4")
	m.export("sample", "web")
	m.told(map[string]string{"web": ""})

	block := netip.MustParsePrefix("120.1.0.0/24")
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.GlobalCIDR = block.String() })
	ip := m.globalIP("web", v1alpha1.ReasonAllocated, backendsOf("[{TCP 80 [{10.7.0.4 8080} {10.7.0.5 8080}]}]"))
	if a, err := netip.ParseAddr(ip); err != nil || !globalnet.Ingress(block).Contains(a) {
		t.Errorf("address %q", ip)
	}
	m.told(map[string]string{"web": ip})
	change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = endpointsOf("10.7.0.6") })
	m.globalIP("web", v1alpha1.ReasonAllocated, backendsOf("[{TCP 80 [{10.7.0.6 8080}]}]"))

	for _, affinity := range []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone} {
		change(m, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}}, func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = affinity, nil
		})
		m.eventually("what gateways are told of session affinity", func(ctx context.Context) error {
			a := &v1alpha1.GlobalAllocation{}
			if err := m.Get(ctx, types.NamespacedName{Name: "ingress.sample.web"}, a); err != nil {
				return err
			}
			return expect("affinity", cmp.Or(a.Spec.Ingress.SessionAffinity, corev1.ServiceAffinityNone), affinity)
		})
	}

	headless := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "headless"}}
	headless.Spec.ClusterIP, headless.Spec.Ports = corev1.ClusterIPNone, []corev1.ServicePort{{Name: "http", Port: 80}}
	m.create(headless)
	m.export("sample", "headless")
	m.service("sample", "other", "10.7.0.9")
	m.export("sample", "other")
	other := m.globalIP("other", v1alpha1.ReasonAllocated, backendsOf("[{TCP 80 [{10.7.0.9 8080}]}]"))
	m.told(map[string]string{"web": ip, "other": other, "headless": ""})

	t.Log("deleted by hand")
	o := &v1alpha1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}}
	if err := m.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := m.globalIP("web", v1alpha1.ReasonAllocated, backendsOf("[{TCP 80 [{10.7.0.6 8080}]}]")); got != ip {
		t.Errorf("it had %s and has %s", ip, got)
	}

	t.Log("a restart with a status that is half written, and with another's address")
	m.stop()
	m.eventually("the status taken away", func(ctx context.Context) error {
		if err := m.Get(ctx, types.NamespacedName{Namespace: "sample", Name: "other"}, o); err != nil {
			return err
		}
		o.Status.IP, o.Status.Conditions, o.Status.Ports = ip, nil, nil
		return m.asAgent().Status().Update(ctx, o)
	})
	m.start(m.config)
	for name, want := range map[string]string{"web": ip, "other": other} {
		if got := m.globalIP(name, v1alpha1.ReasonAllocated, func(s v1alpha1.GlobalIngressIPStatus) error {
			return expect("ports", len(s.Ports), 1)
		}); got != want {
			t.Errorf("%s had %s and has %s", name, want, got)
		}
	}

	t.Log("exported no more, and again")
	export := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "web"}}
	if err := m.Delete(t.Context(), export); err != nil {
		t.Fatal(err)
	}
	if got := m.globalIP("web", v1alpha1.ReasonReleased, func(s v1alpha1.GlobalIngressIPStatus) error {
		if s.ReleasedAt == nil {
			return errors.New("no time")
		}
		return backendsOf("[]")(s)
	}); got != ip {
		t.Errorf("the address kept is %s, it was %s", got, ip)
	}
	m.told(map[string]string{"other": other, "headless": ""})
	m.export("sample", "web")
	if got := m.globalIP("web", v1alpha1.ReasonAllocated, backendsOf("[{TCP 80 [{10.7.0.6 8080}]}]")); got != ip {
		t.Errorf("exported again it has %s, it had %s", got, ip)
	}

	t.Log("another block")
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.GlobalCIDR = "120.2.0.0/24" })
	m.eventually("an address of it", func(ctx context.Context) error {
		if err := m.Get(ctx, types.NamespacedName{Namespace: "sample", Name: "web"}, o); err != nil {
			return err
		}
		if a, err := netip.ParseAddr(o.Status.IP); err != nil || !netip.MustParsePrefix("120.2.0.0/25").Contains(a) {
			return fmt.Errorf("address %q", o.Status.IP)
		}
		return nil
	})

	t.Log("the cluster leaves")
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.Phase = v1alpha1.MemberLeaving })
	for _, name := range []string{"web", "other"} {
		m.eventually(name+" gone", func(ctx context.Context) error {
			err := m.Get(ctx, types.NamespacedName{Namespace: "sample", Name: name}, o)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it is there"), err)
		})
	}
}

// asAgent is a client by the agent's name that may do anything: to the admission policies it is the agent.
func (m *member) asAgent() client.Client {
	m.t.Helper()
	config := rest.CopyConfig(m.config)
	config.Impersonate.Groups = []string{"system:masters"}
	c, err := client.New(config, client.Options{Scheme: m.Scheme()})
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// TestTenantClaimsTheBlock: a GlobalIngressIP that a tenant made and that says to have all addresses, on an API server
// that does not know admission policies, takes none, and is removed.
func TestTenantClaimsTheBlock(t *testing.T) {
	m := newMember(t)
	if err := m.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sealane-global-addresses"}}); err != nil {
		t.Fatal(err)
	}
	m.namespace("sample")
	m.namespace("attacker")
	block := netip.MustParsePrefix("120.1.0.0/26")
	claim := &v1alpha1.GlobalIngressIP{ObjectMeta: metav1.ObjectMeta{Namespace: "attacker", Name: "web"},
		Spec: v1alpha1.GlobalIngressIPSpec{Service: "web"}}
	m.create(claim)
	for n := range globalnet.IngressSize(block) {
		claim.Status.Pods = append(claim.Status.Pods, v1alpha1.GlobalPod{Name: fmt.Sprint("p", n), IP: "10.7.0.66",
			GlobalIP: globalnet.At(block, n+1).String()})
	}
	m.eventually("the status as the tenant has it", func(ctx context.Context) error {
		return m.Status().Update(ctx, claim) // the binding's end takes a moment
	})
	m.start(m.config)
	peering := m.peering(1)
	change(m, peering, func(p *v1alpha1.Peering) { p.Spec.GlobalCIDR = block.String() })
	m.service("sample", "web", "10.7.0.4")
	m.eventually("ServiceExport served", func(ctx context.Context) error { return m.List(ctx, &mcs.ServiceExportList{}) })
	m.export("sample", "web")
	ip := m.globalIP("web", v1alpha1.ReasonAllocated, backendsOf("[{TCP 80 [{10.7.0.4 8080}]}]"))
	m.told(map[string]string{"web": ip})
	m.eventually("the claim is removed", func(ctx context.Context) error {
		err := m.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
}

// TestTenantNamesAnothersPod: an EndpointSlice that a tenant writes for a headless service of its own, with the
// addresses of another namespace's pod and of nobody, gives them no global address: others would reach the pod by it at
// all ports, and know the pod by it in the place of its namespace's addresses. So does no pod that says to have that
// address later.
func TestTenantNamesAnothersPod(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("victim")
	m.namespace("sample")
	peering := m.peering(1)
	change(m, peering, func(p *v1alpha1.Peering) {
		p.Spec.GlobalCIDR, p.Spec.Networks.PodCIDRs = "120.1.0.0/24", []string{"10.7.0.0/16"}
	})
	m.runningIn("victim", "db-0", "db", "10.7.0.4")
	headless := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db"}}
	headless.Spec.ClusterIP, headless.Spec.Ports = corev1.ClusterIPNone, []corev1.ServicePort{{Name: "http", Port: 80}}
	m.create(headless)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: endpointsOf("10.7.0.4", "10.7.0.5", "10.7.0.6", "10.7.0.7"),
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}}}
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "victim", Name: "db-0"}
	slice.Endpoints[1].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "sample", Name: "db-0"}
	m.create(slice)
	m.export("sample", "db")
	time.Sleep(1100 * time.Millisecond) // objects tell the second in which they were made
	m.running("late", "db", "10.7.0.4")
	m.running("own", "db", "10.7.0.7")
	m.globalIP("db", v1alpha1.ReasonAllocated, func(s v1alpha1.GlobalIngressIPStatus) error {
		var got []string
		for _, p := range s.Pods {
			got = append(got, p.Name+"="+p.IP)
		}
		return expect("pods", fmt.Sprint(got), "[own=10.7.0.7]")
	})
}

// TestGlobalAddressesOfPods: each ready pod behind an exported headless service has an address of the block, and keeps
// it by its name: where it comes back, over a restart of the agent, and while the service is not exported for a while.
func TestGlobalAddressesOfPods(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	peering := m.peering(1)
	change(m, peering, func(p *v1alpha1.Peering) {
		p.Spec.GlobalCIDR, p.Spec.Networks.PodCIDRs = "120.1.0.0/24", []string{"10.7.0.0/16"}
	})
	m.node("node-b", "10.7.0.0/24", "192.0.2.2")
	headless := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db"}}
	headless.Spec.ClusterIP, headless.Spec.Ports = corev1.ClusterIPNone, []corev1.ServicePort{{Name: "http", Port: 80}}
	m.create(headless)
	pods := func(ips ...string) []discoveryv1.Endpoint {
		out := endpointsOf(ips...)
		for i := range out {
			name := fmt.Sprintf("db-%d", i)
			out[i].Hostname, out[i].TargetRef = &name, &corev1.ObjectReference{Kind: "Pod", Namespace: "sample", Name: name}
			out[i].NodeName = ptr.To("node-b")
		}
		return out
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: pods("10.7.0.4", "10.7.0.5", "172.31.0.9"), Ports: []discoveryv1.EndpointPort{{}}}
	name, port := "http", int32(8080)
	slice.Ports[0].Name, slice.Ports[0].Port = &name, &port
	m.create(slice)
	m.export("sample", "db")
	m.running("db-0", "db", "10.7.0.4")
	db1 := m.running("db-1", "db", "10.7.0.5")

	has := func(reason, want string) map[string]string {
		t.Helper()
		of := map[string]string{}
		m.globalIP("db", reason, func(s v1alpha1.GlobalIngressIPStatus) error {
			text := ""
			for _, p := range s.Pods {
				text += fmt.Sprintf("%s=%s,%v ", p.Name, p.IP, p.ReleasedAt != nil)
				of[p.Name] = p.GlobalIP
				if a, err := netip.ParseAddr(p.GlobalIP); err != nil || !netip.MustParsePrefix("120.1.0.0/25").Contains(a) {
					return fmt.Errorf("%s has %q", p.Name, p.GlobalIP)
				}
			}
			return errors.Join(expect("pods", text, want), expect("address", s.IP, ""))
		})
		return of
	}
	// toldPods waits until the Bundle tells of these pods' global addresses.
	toldPods := func(want map[string]string) {
		t.Helper()
		m.eventually("global addresses of pods reported", func(ctx context.Context) error {
			b := &v1alpha1.Bundle{}
			if err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.BundleName(0)}, b); err != nil {
				return err
			}
			got := map[string]string{}
			for _, e := range b.Status.Exports {
				for _, g := range e.Backends {
					for _, a := range g.Addresses {
						got[a.Hostname] = a.GlobalIP
					}
				}
			}
			return expect("addresses", got, want)
		})
	}
	first := has(v1alpha1.ReasonAllocated, "db-0=10.7.0.4,false db-1=10.7.0.5,false ")
	if first["db-0"] == first["db-1"] {
		t.Errorf("both have %v", first)
	}
	toldPods(map[string]string{"db-0": first["db-0"], "db-1": first["db-1"], "db-2": ""})
	same := func(got map[string]string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(first) {
			t.Errorf("had %v, has %v", first, got)
		}
	}

	t.Log("a pod goes, and comes back with another address")
	change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = pods("10.7.0.4") })
	same(has(v1alpha1.ReasonAllocated, "db-0=10.7.0.4,false db-1=,true "))
	toldPods(map[string]string{"db-0": first["db-0"]})
	m.stop()
	m.start(m.config)
	db1.Status.PodIP, db1.Status.PodIPs = "10.7.0.7", []corev1.PodIP{{IP: "10.7.0.7"}}
	if err := m.Status().Update(t.Context(), db1); err != nil {
		t.Fatal(err)
	}
	change(m, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints = pods("10.7.0.4", "10.7.0.7") })
	same(has(v1alpha1.ReasonAllocated, "db-0=10.7.0.4,false db-1=10.7.0.7,false "))
	toldPods(first)

	t.Log("exported no more, and again")
	export := &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "db"}}
	if err := m.Delete(t.Context(), export); err != nil {
		t.Fatal(err)
	}
	same(has(v1alpha1.ReasonReleased, "db-0=,true db-1=,true "))
	m.export("sample", "db")
	same(has(v1alpha1.ReasonAllocated, "db-0=10.7.0.4,false db-1=10.7.0.7,false "))
	toldPods(first)
}
