// SPDX-License-Identifier: Apache-2.0

package sealane_test

import (
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/config/crd"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	endpointJSON = `{"status":{"endpoint":{"gateway":"n1","slot":0,"mtu":1420,"publicKey":"k","addresses":[]}}}`
	stateJSON    = `{"status":{"conditions":[{"type":"sealane.io/Programmed","status":"True"}]}}`
)

// TestNodeTokenSpeaksForItsNodeAlone: what the token of one node's agent can write, with that token.
func TestNodeTokenSpeaksForItsNodeAlone(t *testing.T) {
	admin := connect(t, server)
	installAll(t, admin, "artifacts/deploy/*.yaml")
	own := podOn(t, admin, "n1", "sealane-node-1", "sealane-node")
	other := podOn(t, admin, "n2", "sealane-node-2", "sealane-node")
	neighbour := podOn(t, admin, "n1", "sealane-dns-1", "sealane-dns")
	elsewhere := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	gateway := func(name string) *v1alpha1.Gateway {
		return &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	lease := func(node string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace,
			Name: v1alpha1.GatewayLeasePrefix + node}}
	}
	leader, theirs := lease(""), lease("n3")
	leader.Name = "sealane-cluster-agent"
	create(t, admin, elsewhere, gateway("n1"), gateway("n2"), leader, theirs)
	agent := with(t, token(t, "sealane-node", own), "sealane-agent")
	enforced(t, func() error { return patchStatus(t, gateway("n2"), endpointJSON)(agent) })

	event := func(namespace string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "n1."},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "Gateway", Namespace: namespace, Name: "n1",
			},
			Type: corev1.EventTypeNormal, Reason: "Active",
		}
	}
	expect(t, agent, []write{
		{"the status of its own Gateway", done, patchStatus(t, gateway("n1"), endpointJSON)},
		{"its own Lease", done, creates(t, lease("n1"))},
		{"its own Lease, again", done, patch(t, lease("n1"), `{"spec":{"holderIdentity":"n1"}}`)},
		{"the state of its node, on its own pod", done, patchStatus(t, own, stateJSON)},
		{"an event in Sealane's namespace", done, creates(t, event(v1alpha1.Namespace))},
		{"a review of a token", done, reviewsToken(t)},
		{"a review of a right", done, reviewsRight(t)},

		{"the key of another Gateway", byPolicy, patchStatus(t, gateway("n2"), endpointJSON)},
		{"another node's Lease", byPolicy, creates(t, lease("n2"))},
		{"another node's Lease, again", byPolicy, patch(t, theirs, `{"spec":{"holderIdentity":"n1"}}`)},
		{"the leader's Lease", byPolicy, patch(t, leader, `{"spec":{"holderIdentity":"n1"}}`)},
		{"its Lease's end", noRight, deletes(t, lease("n1"))},
		{"the spec of its own Gateway", noRight, patch(t, gateway("n1"), `{"spec":{"slot":3}}`)},
		{"a Gateway", noRight, creates(t, gateway("n3"))},
		{"a service's global address", noRight, creates(t, &v1alpha1.GlobalIngressIP{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       v1alpha1.GlobalIngressIPSpec{Service: "web"}})},
		{"whose a global address is", noRight, creates(t, ingressAllocation("web"))},
		{"its Gateway's end", noRight, deletes(t, gateway("n1"))},
		{"the state of another node", byPolicy, patchStatus(t, other, stateJSON)},
		{"the status of another pod on its node", byPolicy, patchStatus(t, neighbour, stateJSON)},
		{"the status of a tenant's pod on its node", noRight, patchStatus(t, elsewhere, stateJSON)},
		{
			"its pod's labels, by way of the status", byPolicy,
			patchStatus(t, own, `{"metadata":{"labels":{"app.kubernetes.io/name":"sealane-dns"}}}`),
		},
		{
			"its pod's address", byPolicy,
			patchStatus(t, own, `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`),
		},
		{"its pod's phase", byPolicy, patchStatus(t, own, `{"status":{"phase":"Succeeded"}}`)},
		{
			"an annotation that steers others", byPolicy,
			patchStatus(t, own, `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks":"x"}}}`),
		},
		{"an event in another namespace", noRight, creates(t, event("default"))},
		{
			"a node", noRight,
			patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, `{"metadata":{"labels":{"a":"b"}}}`),
		},
		{"a Secret", noRight, func(c client.Client) error { return c.List(t.Context(), &corev1.SecretList{}) }},
	})

	t.Run("a token that is bound to no pod writes nothing", func(t *testing.T) {
		expect(t, with(t, token(t, "sealane-node", nil), "sealane-agent"), []write{
			{"the status of a Gateway", byPolicy, patchStatus(t, gateway("n1"), endpointJSON)},
			{"a Lease", byPolicy, creates(t, lease("n4"))},
			{"the state of a node", byPolicy, patchStatus(t, own, stateJSON)},
		})
	})
	t.Run("others are not touched by the policy", func(t *testing.T) {
		expect(t, admin, []write{
			{"the status of a Gateway", done, patchStatus(t, gateway("n2"), endpointJSON)},
			{"the labels of a pod", done, patch(t, own, `{"metadata":{"labels":{"a":"b"}}}`)},
		})
	})
}

const (
	derived = "sl-0123456789"
	stock   = ".:53 {\n    errors\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       pods insecure\n    }\n" +
		"    reload\n}\n"
	ours = "# BEGIN sealane\nclusterset.local:53 {\n    errors\n    forward . 10.96.0.7\n}\n# END sealane\n"
)

// reverseBlock is the server block for the names of addresses, and ownAnswers the part by which the cluster goes first.
const (
	ownAnswers = "    kubernetes cluster.local in-addr.arpa ip6.arpa {\n" +
		"        labels !sealane.io/import,!kubernetes.io/service-name\n        fallthrough\n    }\n"
	reverseBlock = "96.10.in-addr.arpa:53 {\n    errors\n" + ownAnswers + "    forward . 10.96.0.7\n}\n"
)

// ownedLabels are those of the objects of an import.
func ownedLabels(service string) map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": v1alpha1.ManagedBy, v1alpha1.LabelImport: service}
}

func derivedService(name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: ownedLabels("web")},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func derivedSlice(name, service string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{
			discoveryv1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelImport: "web",
		}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.9.0.1"}}},
	}
	if service != "" {
		s.Labels[discoveryv1.LabelServiceName] = service
	}
	return s
}

func serviceImport(name string, labels map[string]string) *mcs.ServiceImport {
	return &mcs.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Spec: mcs.ServiceImportSpec{
			Type: mcs.ClusterSetIP, Ports: []mcs.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func mcsCRD(t *testing.T, text []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	c := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, c); err != nil {
		t.Fatal(err)
	}
	c.Labels["app.kubernetes.io/managed-by"] = v1alpha1.ManagedBy
	return c
}

func corefile(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data:       map[string]string{"Corefile": text, "other.db": "zone"},
	}
}

// TestClusterTokenWritesWhatSealaneOwns: every write of the cluster agent, and what its token must not do.
func TestClusterTokenWritesWhatSealaneOwns(t *testing.T) {
	admin := connect(t, server)
	installAll(t, admin, "artifacts/deploy/*.yaml")
	pod := podOn(t, admin, "n1", "sealane-cluster-agent-1", "sealane-cluster-agent")
	agent := with(t, token(t, "sealane-cluster-agent", pod), "sealane-cluster-agent/test")
	users := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	taken := derivedService("sl-ffffffffff", func(s *corev1.Service) {
		s.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	})
	usersSlice := derivedSlice("shop-1", "shop")
	usersSlice.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	create(t, admin, users, taken, usersSlice, corefile(stock))
	enforced(t, func() error {
		return patchUpdate(t, users, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} })(agent)
	})

	exports, imports := mcsCRD(t, crd.ServiceExportCRD), mcsCRD(t, crd.ServiceImportCRD)
	foreign := mcsCRD(t, crd.ServiceExportCRD)
	foreign.Labels = map[string]string{}
	gadget := exports.DeepCopy()
	gadget.Name, gadget.Spec.Group = "serviceexports.example.org", "example.org"
	converted := exports.DeepCopy()
	converted.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://example.org/")},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	unlabel := patch(t, exports, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`)
	relabel := patchUpdate(t, exports, func(d *apiextensionsv1.CustomResourceDefinition) { d.Labels = exports.Labels })
	peerings := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "peerings.sealane.io"}}
	peering := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}}
	t.Run("the CRDs of the MCS API", func(t *testing.T) {
		expect(t, agent, []write{
			{"with a webhook that reads every object", byPolicy, creates(t, converted)},
			{"unlabelled", byPolicy, creates(t, foreign)},
			{"another CRD", byPolicy, creates(t, gadget)},
			{"ServiceExport", done, creates(t, exports)},
			{"ServiceImport", done, creates(t, imports)},
			{"an update", noRight, patch(t, exports, `{"metadata":{"annotations":{"a":"b"}}}`)},
			{"an update, whole", done, patchUpdate(t, imports, func(d *apiextensionsv1.CustomResourceDefinition) {
				d.Spec.Names.Categories = []string{"mcs"}
			})},
			{"a deletion", noRight, deletes(t, exports)},
			{
				"a CRD of Sealane", noRight,
				patch(t, peerings, `{"metadata":{"labels":{"a":"b"}}}`),
			},
			{
				"one that is not labelled as ours", byPolicy,
				func(c client.Client) error { return errors.Join(unlabel(admin), relabel(c)) },
			},
		})
	})
	t.Run("Events", func(t *testing.T) { testEventWrites(t, admin, agent) })
	t.Run("Services", func(t *testing.T) { testServiceWrites(t, agent, users, taken) })
	t.Run("EndpointSlices", func(t *testing.T) { testSliceWrites(t, admin, agent, usersSlice) })
	t.Run("ServiceImports", func(t *testing.T) { testImportWrites(t, admin, agent) })
	t.Run("the Corefile", func(t *testing.T) { testCorefileWrites(t, admin, agent) })
	t.Run("the Corefile, by the Peering", func(t *testing.T) { testForwarded(t, admin, agent) })
	gateway := &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n9"}}
	expect(t, agent, []write{
		{"a Gateway", done, creates(t, gateway)},
		{
			"that its agent is silent", done,
			patchStatus(t, gateway, `{"status":{"silentSince":"2026-01-01T00:00:00Z"}}`),
		},
		{"a Gateway's end", done, deletes(t, gateway)},
		{"a review of a token", done, reviewsToken(t)},
		{"a review of a right", done, reviewsRight(t)},
		{"a pod", noRight, patch(t, pod, `{"metadata":{"labels":{"a":"b"}}}`)},
		{"a Secret", noRight, func(c client.Client) error { return c.List(t.Context(), &corev1.SecretList{}) }},
		{"a ClusterRole", noRight, creates(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "root"}})},
		{
			"the spec of the Peering", noRight,
			patch(t, peering, `{"spec":{"phase":"Leaving"}}`),
		},
	})
}

func testEventWrites(t *testing.T, admin, agent client.Client) {
	event := func(namespace, component, kind string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: "web."},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: "web"},
			Source:         corev1.EventSource{Component: component},
			Type:           corev1.EventTypeNormal, Reason: "Exported",
		}
	}
	const own = "sealane-cluster-agent"
	told := event("default", own, "ServiceExport")
	told.Name = "web.1"
	kubelets := event("default", "kubelet", "Pod")
	kubelets.Name = "pod.1"
	create(t, admin, kubelets)
	expect(t, agent, []write{
		{"of an export", done, creates(t, told)},
		{"of that, once more", done, patch(t, told, `{"count":2}`)},
		{"of an import", done, creates(t, event("default", own, "ServiceImport"))},
		{"of the cluster's DNS", done, creates(t, event("kube-system", own, "ConfigMap"))},
		{"of its Lease", done, creates(t, event(v1alpha1.Namespace, "n1_0123", "Lease"))},
		{"in the name of the kubelet", byPolicy, creates(t, event("default", "kubelet", "ServiceExport"))},
		{"that becomes the kubelet's", byPolicy, patch(t, told, `{"source":{"component":"kubelet"}}`)},
		{"of a pod", byPolicy, creates(t, event("default", own, "Pod"))},
		{"the kubelet's, made its own", byPolicy, patch(t, kubelets, `{"source":{"component":"sealane-cluster-agent"},`+
			`"reportingComponent":"sealane-cluster-agent","involvedObject":{"kind":"ConfigMap"}}`)},
		{"an event's end", noRight, deletes(t, told)},
	})
}

func testServiceWrites(t *testing.T, agent client.Client, users, taken *corev1.Service) {
	own := derivedService(derived, nil)
	probe := derivedService("sl-range", func(s *corev1.Service) { s.Labels, s.Namespace = nil, v1alpha1.Namespace })
	expect(t, agent, []write{
		{"a derived Service", done, creates(t, own)},
		{"its ports", done, patchUpdate(t, own, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })},
		{"the trial that names the service range", done, creates(t, probe, client.DryRunAll)},
		{"the trial, in earnest", byPolicy, creates(t, probe)},
		{
			"a user's Service", byPolicy,
			patchUpdate(t, users, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} }),
		},
		{
			"a user's Service, labelled as ours", byPolicy,
			patchUpdate(t, users, func(s *corev1.Service) { s.Labels = own.Labels }),
		},
		{"a user's Service, deleted", byPolicy, deletes(t, users)},
		{
			"a Service of our name that Helm manages", byPolicy,
			patchUpdate(t, taken, func(s *corev1.Service) { s.Labels = own.Labels }),
		},
		{"that, deleted", byPolicy, deletes(t, taken)},
		{"a Service of another name", byPolicy, creates(t, derivedService("sl-web", nil))},
		{
			"an unlabelled Service", byPolicy,
			creates(t, derivedService("sl-1111111111", func(s *corev1.Service) { s.Labels = nil })),
		},
		{
			"external IPs", byPolicy,
			patchUpdate(t, own, func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }),
		},
		{
			"a selector", byPolicy,
			patchUpdate(t, own, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} }),
		},
		{
			"a NodePort", byPolicy,
			patchUpdate(t, own, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
		},
		{"an ExternalName", byPolicy, creates(t, derivedService("sl-2222222222", func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
		}))},
		{"the derived Service's end", done, deletes(t, own)},
	})
}

func testSliceWrites(t *testing.T, admin, agent client.Client, users *discoveryv1.EndpointSlice) {
	name := derived + "-01234567-0"
	own := derivedSlice(name, derived)
	stripped := derivedSlice(derived+"-01234567-1", "")
	stripped.Labels = nil
	create(t, admin, stripped)
	balanced := func(name, service, namespace string, protocol corev1.Protocol) *discoveryv1.EndpointSlice {
		s := derivedSlice(name, service)
		s.Namespace, s.Ports = namespace, []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Port: ptr.To(int32(4500)),
			Protocol: &protocol}}
		return s
	}
	const balancer = "sl-gateway-lb-0-ipv4"
	expect(t, agent, []write{
		{"a load balancer's slice", done, creates(t, balanced(balancer, "lb", v1alpha1.Namespace, corev1.ProtocolUDP))},
		{"its end", done, deletes(t, balanced(balancer, "lb", v1alpha1.Namespace, corev1.ProtocolUDP))},
		{"one of TCP", byPolicy, creates(t, balanced(balancer, "lb", v1alpha1.Namespace, corev1.ProtocolTCP))},
		{"one of a user's Service", byPolicy, creates(t, balanced(balancer, "lb", "default", corev1.ProtocolUDP))},
		{
			"one that leads DNS astray", byPolicy,
			creates(t, balanced(balancer, "sealane-dns", v1alpha1.Namespace, corev1.ProtocolUDP)),
		},
		{"a slice of a derived Service", done, creates(t, own)},
		{
			"its endpoints", done,
			patchUpdate(t, own, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.9.0.2" }),
		},
		{"a slice that people read, of no Service", done, creates(t, derivedSlice(derived+"-89abcdef-0", ""))},
		{"one that lost its labels", done, deletes(t, stripped)},
		{"an endpoint for a user's Service", byPolicy, creates(t, derivedSlice(derived+"-01234567-2", "shop"))},
		{"an endpoint for the API server", byPolicy, creates(t, derivedSlice(derived+"-01234567-3", "kubernetes"))},
		{
			"its slice moved to a user's Service", byPolicy,
			patchUpdate(t, own, func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "shop" }),
		},
		{
			"a user's slice", byPolicy,
			patchUpdate(t, users, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.9.0.2" }),
		},
		{"a user's slice, deleted", byPolicy, deletes(t, users)},
		{"the slice's end", done, deletes(t, own)},
	})
}

func testImportWrites(t *testing.T, admin, agent client.Client) {
	labels := ownedLabels("web")
	own := serviceImport("web", labels)
	for client.IgnoreAlreadyExists(agent.Create(t.Context(), own.DeepCopy())) != nil {
		// The kind is served a moment after its CRD is there.
		if t.Context().Err() != nil {
			t.Fatal("ServiceImport is not served")
		}
	}
	users := serviceImport("users", nil)
	propagated := serviceImport("propagated", ownedLabels("propagated"))
	propagated.Labels["karmada.io/managed"] = "true"
	create(t, admin, users, propagated)
	status := `{"status":{"clusters":[{"cluster":"c2"}]}}`
	expect(t, agent, []write{
		{"its status", done, patchStatus(t, own, status)},
		{"its ports", done, patchUpdate(t, own, func(i *mcs.ServiceImport) { i.Spec.Ports[0].Port = 81 })},
		{"its labels, after a user took them", done, func(c client.Client) error {
			if err := patch(t, own, `{"metadata":{"labels":null}}`)(admin); err != nil {
				return err
			}
			return patchUpdate(t, own, func(i *mcs.ServiceImport) { i.Labels = labels })(c)
		}},
		{"an unlabelled one", byPolicy, creates(t, serviceImport("other", nil))},
		{"one that is labelled for another import", byPolicy, creates(t, serviceImport("other", labels))},
		{"a user's", byPolicy, patchUpdate(t, users, func(i *mcs.ServiceImport) {
			i.Labels = ownedLabels("users")
		})},
		{"a user's, its status", byPolicy, patchStatus(t, users, status)},
		{"a user's, deleted", byPolicy, deletes(t, users)},
		{"Karmada's", byPolicy, patchUpdate(t, propagated, func(i *mcs.ServiceImport) { i.Spec.Ports[0].Port = 81 })},
		{"its end", done, deletes(t, own)},
	})
}
