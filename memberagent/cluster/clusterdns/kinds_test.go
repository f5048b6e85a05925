// SPDX-License-Identifier: Apache-2.0

package clusterdns

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// cluster is what an API server has. Objects of names in denied may not be read.
type cluster struct {
	objects []client.Object
	denied  []string
}

func (c *cluster) at(o client.Object) int {
	for i := range c.objects {
		if fmt.Sprintf("%T", c.objects[i]) == fmt.Sprintf("%T", o) &&
			client.ObjectKeyFromObject(c.objects[i]) == client.ObjectKeyFromObject(o) {
			return i
		}
	}
	return -1
}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, name := range c.denied {
		if name == key.Name {
			return apierrors.NewForbidden(schema.GroupResource{}, key.Name, nil)
		}
	}
	into.SetNamespace(key.Namespace)
	into.SetName(key.Name)
	i := c.at(into)
	if i < 0 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	switch out := into.(type) {
	case *corev1.ConfigMap:
		c.objects[i].(*corev1.ConfigMap).DeepCopyInto(out)
	case *appsv1.Deployment:
		c.objects[i].(*appsv1.Deployment).DeepCopyInto(out)
	case *unstructured.Unstructured:
		c.objects[i].(*unstructured.Unstructured).DeepCopyInto(out)
	}
	return nil
}

func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, o := range c.objects {
		if s, ok := o.(*corev1.Service); ok {
			list.(*corev1.ServiceList).Items = append(list.(*corev1.ServiceList).Items, *s)
		}
	}
	return nil
}

// apply a plan, in its order.
func (c *cluster) apply(p Plan) {
	for i := range p.Changes {
		change := &p.Changes[i]
		at := c.at(change.Have)
		switch {
		case change.Want == nil:
			c.objects = append(c.objects[:at], c.objects[at+1:]...)
		case at < 0:
			made := change.Want.DeepCopyObject().(client.Object)
			made.SetResourceVersion("1")
			made.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
			c.objects = append(c.objects, made)
		default:
			c.objects[at] = change.Want
		}
	}
}

func (c *cluster) plan(t *testing.T, w Wiring, p *v1alpha1.Peering) Plan {
	t.Helper()
	found, err := w.Find(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return w.Plan(found, p, netip.MustParseAddr("10.96.0.7"))
}

// text of all objects, as a reader compares them.
func (c *cluster) text() string {
	var b strings.Builder
	for _, o := range c.objects {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			fmt.Fprintf(&b, "%s %v %q\n", o.Name, o.Annotations, o.Data)
		case *unstructured.Unstructured:
			fmt.Fprintf(&b, "%s %v\n", o.GetName(), o.Object["spec"])
		}
	}
	return b.String()
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, ResourceVersion: "1"}, Data: data,
	}
}

func corefileIn(name, text string) *corev1.ConfigMap {
	return configMap(name, map[string]string{"Corefile": text})
}

// program of a cluster's DNS: the Service, and a Deployment of the same or another name with the ConfigMaps that it
// mounts, the first for its Corefile.
func programOfDNS(service, deployment, container string, mounts ...string) []client.Object {
	app := map[string]string{"k8s-app": "kube-dns", "app": deployment}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: service, Labels: app}}
	s.Spec.Selector, s.Spec.ClusterIP = app, "10.96.0.10"
	s.Spec.Ports = []corev1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: deployment}}
	d.Spec.Template.Labels = app
	c := corev1.Container{Name: container, Image: "registry.example/" + container + ":1"}
	for i, name := range mounts {
		source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		at := "/etc/coredns/custom"
		if i == 0 {
			source.Items = []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}}
			c.Args, at = []string{"-conf", "/etc/coredns/Corefile"}, "/etc/coredns"
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at})
		d.Spec.Template.Spec.Volumes = append(d.Spec.Template.Spec.Volumes, corev1.Volume{Name: name,
			VolumeSource: corev1.VolumeSource{ConfigMap: source}})
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{c}
	return []client.Object{s, d}
}

func openShift(servers ...any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"logLevel": "Normal"},
		"status": map[string]any{"clusterDomain": "cluster.local"}}}
	o.SetGroupVersionKind(operatorKind)
	o.SetName("default")
	o.SetResourceVersion("1")
	if len(servers) > 0 {
		o.Object["spec"].(map[string]any)["servers"] = servers
	}
	return o
}

func serverFor(name, zone, upstream string) any {
	return map[string]any{"name": name, "zones": []any{zone},
		"forwardPlugin": map[string]any{"upstreams": []any{upstream}}}
}

const (
	aks = ".:53 {\n    errors\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n    }\n    import " +
		"custom/*.override\n}\nimport custom/*.server\n"
	byHand  = "clusterset.local:53 {\n    errors\n    forward . 10.96.0.7\n}\n"
	stubsOf = `"clusterset.local": ["10.96.0.7"]`
)

var k3sProgram = programOfDNS("kube-dns", "coredns", "coredns", "coredns", "coredns-custom")

// Each kind of cluster DNS is found, changed as its owner expects, not changed again, and put back to the byte.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name    string
		objects []client.Object
		wiring  Wiring
		// by is what is said to forward, want what the objects then are in part.
		by, want string
	}{
		{"kubeadm", append(programOfDNS("kube-dns", "coredns", "coredns", "coredns"), corefileIn("coredns", kubeadm)),
			Wiring{},
			"the Corefile in ConfigMap kube-system/coredns", ours},
		{"without any Service", []client.Object{corefileIn("coredns", kubeadm)}, Wiring{},
			"the Corefile in ConfigMap kube-system/coredns", ours},
		{"RKE2", append(programOfDNS("rke2-coredns-rke2-coredns", "rke2-coredns-rke2-coredns", "coredns",
			"rke2-coredns-rke2-coredns"), corefileIn("rke2-coredns-rke2-coredns", kubeadm)), Wiring{},
			"the Corefile in ConfigMap kube-system/rke2-coredns-rke2-coredns", ours},
		{"a Helm release", append(programOfDNS("kube-dns", "coredns", "coredns", "dns-release"),
			corefileIn("dns-release", kubeadm), corefileIn("coredns", ours+stock)), Wiring{},
			"the Corefile in ConfigMap kube-system/dns-release", ours},
		{"the pods' name server", append(programOfDNS("other", "other", "coredns", "own"), corefileIn("own", kubeadm)),
			Wiring{Nameserver: netip.MustParseAddr("10.96.0.10")}, "the Corefile in ConfigMap kube-system/own", ours},
		{"the one that is named", append(programOfDNS("kube-dns", "coredns", "coredns", "coredns"),
			corefileIn("named", kubeadm)), Wiring{ConfigMap: inKubeSystem("named")},
			"the Corefile in ConfigMap kube-system/named", ours},
		{"k3s", append(append([]client.Object{}, k3sProgram...), corefileIn("coredns", k3s)), Wiring{},
			"the file sealane.server in ConfigMap kube-system/coredns-custom", ours},
		{"AKS", append(append([]client.Object{}, k3sProgram...), corefileIn("coredns", aks),
			configMap("coredns-custom", map[string]string{"corp.server": "corp.example:53 {\n}\n", "a.override": "log\n"})),
			Wiring{}, "the file sealane.server in ConfigMap kube-system/coredns-custom", ours},
		{"an import without its mount", append(programOfDNS("kube-dns", "coredns", "coredns", "coredns"),
			corefileIn("coredns", k3s)), Wiring{}, "the Corefile in ConfigMap kube-system/coredns", ours},
		{"kube-dns", programOfDNS("kube-dns", "kube-dns", "kubedns"), Wiring{},
			"stubDomains in ConfigMap kube-system/kube-dns", "{" + stubsOf + "}"},
		{"GKE", append(programOfDNS("kube-dns", "kube-dns", "kubedns"), configMap("kube-dns",
			map[string]string{"stubDomains": "{\n  \"corp.example\": [\"10.0.0.1\"]\n}\n", "upstreamNameservers": "[]"})),
			Wiring{}, "stubDomains in ConfigMap kube-system/kube-dns", "{" + stubsOf + ", \n  \"corp.example\""},
		{"OpenShift", []client.Object{openShift(serverFor("corp", "corp.example", "10.0.0.1"))}, Wiring{},
			"dnses.operator.openshift.io default", "map[forwardPlugin:map[upstreams:[10.96.0.7]] name:sealane"},
		{"OpenShift without servers", []client.Object{openShift()}, Wiring{}, "dnses.operator.openshift.io default",
			"zones:[clusterset.local]"},
		{"NodeLocal DNSCache", []client.Object{corefileIn("coredns", kubeadm), corefileIn("node-local-dns", nodeLocal)},
			Wiring{}, "the Corefile of NodeLocal DNSCache in ConfigMap kube-system/node-local-dns and the Corefile in",
			"bind 169.254.20.10 10.96.0.10\n    forward . 10.96.0.7\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := &cluster{objects: c.objects}
			// What an earlier version left elsewhere does not come back.
			for i, o := range at.objects {
				if cm, ok := o.(*corev1.ConfigMap); ok && cm.Data["Corefile"] == ours+stock {
					at.objects[i] = corefileIn(cm.Name, stock)
				}
			}
			before := at.text()
			at.objects = append([]client.Object{}, c.objects...)
			p := at.plan(t, c.wiring, member())
			if p.Condition.Status != metav1.ConditionTrue || !strings.Contains(p.Condition.Message, ", by "+c.by) {
				t.Fatalf("got %s: %s", p.Condition.Reason, p.Condition.Message)
			}
			at.apply(p)
			want := c.want
			if strings.ContainsAny(want, "\n\"") {
				want = strings.Trim(fmt.Sprintf("%q", want), `"`)
			}
			if got := at.text(); !strings.Contains(got, want) {
				t.Fatalf("got %s\nwant %s", got, want)
			}
			if p := at.plan(t, c.wiring, member()); len(p.Changes) > 0 {
				t.Errorf("it is changed again: %+v", p.Changes)
			}
			leaving := member()
			leaving.Spec.Phase = v1alpha1.MemberLeaving
			p = at.plan(t, c.wiring, leaving)
			if p.Condition.Reason != ReasonRemoved {
				t.Errorf("got %s: %s", p.Condition.Reason, p.Condition.Message)
			}
			at.apply(p)
			if got := at.text(); got != before {
				t.Errorf("got %s\nwant %s", got, before)
			}
		})
	}
}

func member() *v1alpha1.Peering {
	return &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Phase: v1alpha1.MemberActive,
		DNS: v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}}}}
}

// Where nothing can be done, the condition says what was found and what to add, and nothing is written.
func TestKindsThatAreLeftAlone(t *testing.T) {
	custom := func(data map[string]string) []client.Object {
		return append(append([]client.Object{}, k3sProgram...), corefileIn("coredns", k3s), configMap("coredns-custom", data))
	}
	stubs := func(text string) []client.Object {
		return append(programOfDNS("kube-dns", "kube-dns", "kubedns"),
			configMap("kube-dns", map[string]string{"stubDomains": text}))
	}
	for _, c := range []struct {
		name     string
		objects  []client.Object
		denied   []string
		reason   string
		mentions string
	}{
		{"nothing", nil, nil, ReasonNoCorefile, "k8s-app=kube-dns"},
		{"another program", append(programOfDNS("kube-dns", "coredns", "unbound"), corefileIn("coredns", kubeadm)), nil,
			ReasonUnknownDNS, "Deployment kube-system/coredns with the image registry.example/unbound:1"},
		{"another program, by hand", programOfDNS("kube-dns", "coredns", "unbound"), nil, ReasonUnknownDNS, byHand},
		{"a Deployment of another name", programOfDNS("kube-dns", "dns-of-ours", "coredns", "dns-of-ours"), nil,
			ReasonUnknownDNS, "no Deployment could be found"},
		{"a ConfigMap that may not be read", append(programOfDNS("kube-dns", "coredns", "coredns", "release"),
			corefileIn("release", kubeadm)), []string{"release"}, ReasonNotAllowed, "ConfigMap kube-system/release"},
		{"a file beside has the domain", custom(map[string]string{"a.server": "clusterset.local:53 {\n}\n"}), nil,
			ReasonDomainTaken, "sealane.server in ConfigMap kube-system/coredns-custom was left"},
		{"an override has the domain", custom(map[string]string{"a.override": "forward clusterset.local 192.0.2.1"}), nil,
			ReasonDomainTaken, "the plugin forward"},
		{"a file beside is broken", custom(map[string]string{"a.server": "a {\n"}), nil, ReasonInvalidFile, "key a.server"},
		{"a stub domain of somebody's", stubs(`{"clusterset.local": ["192.0.2.1"]}`), nil, ReasonDomainTaken, "stubDomains"},
		{"stub domains that cannot be parsed", stubs(`{"a": 1}`), nil, ReasonInvalidFile, "parse stubDomains"},
		{"a server of somebody's", []client.Object{openShift(serverFor("a", "clusterset.local", "192.0.2.1"))}, nil,
			ReasonDomainTaken, "the server a"},
		{"servers that are none", []client.Object{openShift("a")}, nil, ReasonInvalidFile, "spec.servers[0]"},
		{"marks of the cache on the nodes", []client.Object{corefileIn("coredns", ours+stock),
			corefileIn("node-local-dns", "# BEGIN sealane\n"+nodeLocal)}, nil, ReasonMarkersBroken, "NodeLocal DNSCache"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := (&cluster{c.objects, c.denied}).plan(t, Wiring{}, member())
			if p.Condition.Reason != c.reason || !strings.Contains(p.Condition.Message, c.mentions) ||
				p.Condition.Status != metav1.ConditionFalse || len(p.Changes) > 0 {
				t.Errorf("got %s: %s\n%+v", p.Condition.Reason, p.Condition.Message, p.Changes)
			}
		})
	}
}

// An agent that may not read what a cluster of its kind does not have is an agent of an earlier version's rights.
func TestWhatIsNotNeededMayBeDenied(t *testing.T) {
	at := &cluster{[]client.Object{corefileIn("coredns", kubeadm)}, []string{"coredns-custom", "kube-dns",
		"node-local-dns"}}
	if p := at.plan(t, Wiring{}, member()); p.Condition.Status != metav1.ConditionTrue || len(p.Changes) != 1 {
		t.Errorf("got %+v", p)
	}
}

// What a person has forwarded already counts, and is not touched.
func TestForwardedByHand(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"a Corefile":     {corefileIn("coredns", byHand+stock)},
		"another server": {openShift(serverFor("mine", "clusterset.local", "10.96.0.7:53"))},
		"a cache on nodes": {corefileIn("coredns", ours+stock), corefileIn("node-local-dns", "clusterset.local {\n}\n"+
			nodeLocal)},
		"stub domains": append(programOfDNS("kube-dns", "kube-dns", "kubedns"),
			configMap("kube-dns", map[string]string{"stubDomains": "{" + stubsOf + "}"})),
		"a file of somebody": append(append([]client.Object{}, k3sProgram...), corefileIn("coredns", k3s),
			configMap("coredns-custom", map[string]string{"a.server": byHand})),
	} {
		t.Run(name, func(t *testing.T) {
			for _, phase := range []v1alpha1.MemberPhase{v1alpha1.MemberActive, v1alpha1.MemberLeaving} {
				peering := member()
				peering.Spec.Phase = phase
				at := &cluster{objects: objects}
				p := at.plan(t, Wiring{}, peering)
				if phase == v1alpha1.MemberActive && (p.Condition.Status != metav1.ConditionTrue || len(p.Changes) > 0) {
					t.Errorf("got %+v, %+v", p.Condition, p.Changes)
				}
				at.apply(p)
				for _, o := range at.objects {
					if cm, ok := o.(*corev1.ConfigMap); ok && cm.Name != "coredns" && !equality.Semantic.DeepEqual(cm,
						objects[at.at(cm)]) {
						t.Errorf("%s was changed: %q", cm.Name, cm.Data)
					}
				}
			}
		})
	}
}

// An earlier version wrote into a Corefile that imports files: its block goes before the file comes, since CoreDNS
// takes no zone twice.
func TestTheBlockMovesToTheImportedFile(t *testing.T) {
	at := &cluster{objects: append(append([]client.Object{}, k3sProgram...), corefileIn("coredns", ours+k3s))}
	p := at.plan(t, Wiring{}, member())
	if len(p.Changes) != 2 || p.Changes[0].Have.GetName() != "coredns" || p.Changes[1].Have.GetName() != "coredns-custom" {
		t.Fatalf("got %+v", p.Changes)
	}
	at.apply(p)
	if got := at.objects[2].(*corev1.ConfigMap).Data["Corefile"]; got != k3s {
		t.Errorf("got %s", got)
	}
}

// The file goes before the block comes, too, where the Corefile imports none any more.
func TestTheBlockMovesToTheCorefile(t *testing.T) {
	program := programOfDNS("kube-dns", "coredns", "coredns", "coredns")
	file := configMap("coredns-custom", map[string]string{"sealane.server": ours, "a.server": ""})
	inside := strings.Replace(k3s, "*.override", "*.server", 1)
	for _, corefile := range []string{k3s, strings.TrimSuffix(inside, "import /etc/coredns/custom/*.server\n")} {
		at := &cluster{objects: append(append([]client.Object{}, program...), corefileIn("coredns", corefile), file)}
		if corefile != k3s {
			at.objects[0], at.objects[1] = k3sProgram[0], k3sProgram[1]
		}
		p := at.plan(t, Wiring{}, member())
		if len(p.Changes) != 2 || p.Changes[0].Have.GetName() != "coredns-custom" {
			t.Errorf("got %+v", p.Changes)
		}
	}
}

// Domains that the ClusterSet has no more go, and an address that changed is replaced.
func TestStubDomainsFollowTheClusterSet(t *testing.T) {
	at := &cluster{objects: append(programOfDNS("kube-dns", "kube-dns", "kubedns"),
		configMap("kube-dns", map[string]string{"stubDomains": `{"corp.example": ["10.0.0.1"]}`}))}
	peering := member()
	peering.Spec.DNS.Domains = []string{"clusterset.local", "mesh.example.org"}
	at.apply(at.plan(t, Wiring{}, peering))
	peering.Spec.DNS.Domains = []string{"mesh.example.org"}
	found, err := Wiring{}.Find(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	at.apply(Wiring{}.Plan(found, peering, netip.MustParseAddr("fd00::7")))
	const want = `{"mesh.example.org": ["fd00::7"], "corp.example": ["10.0.0.1"]}`
	if got := at.objects[2].(*corev1.ConfigMap).Data["stubDomains"]; got != want {
		t.Errorf("got %s", got)
	}
}

func TestPutBackIsNotFought(t *testing.T) {
	p, now := newPutBack(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cm := corefileIn("coredns", stock)
	for i := range maxPutBack {
		if since := p.found(cm, byHand, now); !since.IsZero() {
			t.Fatalf("%d times: left alone since %s", i, since)
		}
		p.note(cm, byHand)
		now = now.Add(10 * time.Second)
	}
	if since := p.found(cm, byHand, now); since.IsZero() {
		t.Error("it is written on")
	}
	if since := p.found(cm, byHand, now.Add(putBackWindow)); !since.IsZero() {
		t.Errorf("left alone for longer than the window: since %s", since)
	}

	// A write that fails is tried again: it was still put back, and once.
	p = newPutBack()
	p.note(cm, byHand)
	for i := range 2 * maxPutBack {
		if since := p.found(cm, byHand, now); !since.IsZero() || !p.undone(cm, byHand) {
			t.Fatalf("try %d: undone %v, left alone since %s", i, p.undone(cm, byHand), since)
		}
	}

	// An object that was made anew, and what Sealane itself wants otherwise, were put back by nobody.
	p = newPutBack()
	for i := range 2 * maxPutBack {
		p.note(cm, byHand)
		again := cm.DeepCopy()
		again.UID = "another"
		forward := byHand
		if i%2 == 0 {
			again, forward = cm, "other"
		}
		if since := p.found(again, forward, now); !since.IsZero() {
			t.Fatal("left alone")
		}
	}
}

// The block to add by hand has the port and the addresses of the others beside it.
func TestTheBlockByHandFitsItsFile(t *testing.T) {
	for _, c := range []struct {
		of         driver
		have, want string
	}{
		{wiredCorefile{}, strings.Replace(stock, ".:53", ".:8053", 1), strings.Replace(byHand, ":53", ":8053", 1)},
		{wiredCorefile{}, "{{", byHand},
		{wiredImport{corefile: strings.Replace(aks, ".:53", ".:8053", 1)}, "", strings.Replace(byHand, ":53", ":8053", 1)},
		{wiredNodeLocal{}, nodeLocal, strings.Replace(byHand, "errors\n", "errors\n    bind 169.254.20.10 10.96.0.10\n", 1)},
		{wiredStubs{}, "", `{"clusterset.local":["10.96.0.7"]}`},
		{wiredOperator{}, "", "- name: sealane\n  zones:\n  - clusterset.local\n  forwardPlugin:\n    upstreams: " +
			"[\"10.96.0.7\"]\n"},
	} {
		if got := c.of.byHand(corefileIn("a", c.have), forward); !strings.HasSuffix(got, ":\n"+c.want) {
			t.Errorf("%T: got %s, want %s", c.of, got, c.want)
		}
	}
}

func TestWhoKeepsIt(t *testing.T) {
	cm := corefileIn("coredns", stock)
	early, late := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	cm.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "helm", Time: &early}, {Manager: "argocd-controller", Time: &late}, {Manager: fieldManager, Time: &late},
	}
	cm.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "dns:/ConfigMap:kube-system/coredns"}
	const want = `Argo CD "dns:/ConfigMap:kube-system/coredns", written last by "argocd-controller"`
	if got := keeper(cm, fieldManager); got != want {
		t.Errorf("got %s", got)
	}
	cm.Annotations, cm.Labels = nil, map[string]string{"addonmanager.kubernetes.io/mode": "EnsureExists"}
	if got := keeper(cm, fieldManager); got != `somebody, written last by "argocd-controller"` {
		t.Errorf("got %s", got)
	}
}

func TestTheNameServerOfAPod(t *testing.T) {
	for text, want := range map[string]string{
		"search a\nnameserver 10.96.0.10\nnameserver 10.96.0.11\n": "10.96.0.10",
		"nameserver fd00::a\n": "fd00::a",
		"nameserver x\n":       "invalid IP",
		"":                     "invalid IP",
	} {
		if got := NameserverOf(text).String(); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
