// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/apiserver"
	"github.com/sealane-io/sealane/internal/securemetrics"
	"github.com/sealane-io/sealane/internal/securemetrics/metricstest"
	"github.com/sealane-io/sealane/memberagent/node"
)

// admin returns a client that may do everything.
func admin(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// installNode applies the manifests of the node agent: its rights are part of what is tested.
func installNode(t *testing.T, c client.Client) {
	t.Helper()
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}})
	for _, file := range []string{"node.yaml", "admission.yaml", "metrics-reader.yaml"} {
		text, err := os.ReadFile("../../artifacts/deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				t.Fatal(err)
			}
			withoutNodes(o)
			create(t, c, o)
		}
	}
}

// withoutNodes takes the right to read Nodes from a role, which agents of the release before need alone.
func withoutNodes(o *unstructured.Unstructured) {
	rules, ok, _ := unstructured.NestedSlice(o.Object, "rules")
	if !ok {
		return
	}
	_ = unstructured.SetNestedSlice(o.Object, slices.DeleteFunc(rules, func(r any) bool {
		return fmt.Sprint(r.(map[string]any)["resources"]) == "[nodes]"
	}), "rules")
}

// The agent gets along with a real API server and the rights that its manifest gives it, less what it needs no more.
func TestKube(t *testing.T) {
	t.Parallel()
	run(t, "ip link set lo up")
	crds, err := apiserver.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	config := apiserver.Start(t, crds)
	c := admin(t, config)
	installNode(t, c)
	spec := v1alpha1.PeeringSpec{
		Phase: v1alpha1.MemberActive, ClusterSet: "default", ClusterID: "c1", Shards: 4,
		Cable:       v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
		DNS:         v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}},
		HealthCheck: v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
		Conditions:  []metav1.Condition{}, RemoteClusters: []v1alpha1.RemoteCluster{},
	}
	pod := corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "node", Image: "agent"}}}
	create(t, c,
		&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: spec},
		&v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node-x"}, Spec: pod},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "lb"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
	)
	klog.SetLogger(testr.New(t))
	ctrllog.SetLogger(testr.New(t))
	own := rest.CopyConfig(config)
	own.Impersonate.UserName = "system:serviceaccount:" + v1alpha1.Namespace + ":sealane-node"
	own.Impersonate.Extra = map[string][]string{
		"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/pod-name": {"sealane-node-x"},
	}
	ready := true
	tellNodes(t, c, "n1")
	create(t, c, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.6"},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}}, {Addresses: []string{"203.0.113.5"}}},
	})
	k := start(t, own)
	o, _, err := k.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Peering == nil || len(o.Gateways) != 1 || len(o.Nodes) != 1 || len(o.Nodes[0].Spec.PodCIDRs) != 1 {
		t.Errorf("objects %+v", o)
	}
	// The last is the one that the agent dials.
	if got, want := fmt.Sprint(o.APIServers), "[203.0.113.5 203.0.113.6 127.0.0.1]"; got != want {
		t.Errorf("API servers %s, want %s", got, want)
	}
	t.Run("API servers", func(t *testing.T) { testAPIServers(t, k, c) })
	t.Run("nodes", func(t *testing.T) { testNodes(t, k, c) })
	t.Run("networks of nodes", func(t *testing.T) { testNodeNetworks(t, k, c) })
	t.Run("status", func(t *testing.T) { testStatus(t, k, c) })
	t.Run("alive", func(t *testing.T) { testAlive(t, k, c) })
	t.Run("state", func(t *testing.T) { testState(t, k, c, own) })
	t.Run("load balancer", func(t *testing.T) {
		if _, err := k.LoadBalancer(t.Context(), "lb"); err != nil {
			t.Error(err)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		const address = "127.0.0.1:9811"
		securemetrics.Serve(t.Context(), securemetrics.Options(address, t.TempDir(), own))
		metricstest.Check(t, config, address, "sealane-metrics-reader", "rest_client_requests_total{")
	})
	t.Run("connections that are lost", func(t *testing.T) { testLostConnections(t, c, own) })
	t.Run("uninstalled", func(t *testing.T) { testUninstalled(t, c, config) })
}

// testAPIServers: the addresses follow the EndpointSlice that the API servers keep of themselves, also when they
// are of the other family, and one of that name in another namespace is not theirs.
func testAPIServers(t *testing.T, k *node.Kube, c client.Client) {
	slice := func(namespace, address string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubernetes"}, AddressType: discoveryv1.AddressTypeIPv6,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
	}
	create(t, c, slice(v1alpha1.Namespace, "2001:db8::666"))
	theirs := slice(metav1.NamespaceDefault, "2001:db8::5")
	remove(t, c, theirs) // the family of a slice is for its life
	create(t, c, theirs)
	const want = "[2001:db8::5 127.0.0.1]"
	var got string
	eventually(t, 10*time.Second, "the API servers are "+want, func() bool {
		o, _, err := k.Objects(t.Context())
		got = fmt.Sprint(o.APIServers, err)
		return err == nil && fmt.Sprint(o.APIServers) == want
	})
	t.Log(got)
}

// testState: the conditions get there, the kubelet's stay, and the agent can write nothing else of a pod.
func testState(t *testing.T, k *node.Kube, c client.Client, own *rest.Config) {
	var p corev1.Pod
	key := client.ObjectKey{Namespace: v1alpha1.Namespace, Name: "sealane-node-x"}
	if err := c.Get(t.Context(), key, &p); err != nil {
		t.Fatal(err)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	const allReached = "True Reached every other gateway of the cluster answers, if there is one"
	for _, s := range []struct {
		state                         node.NodeState
		programmed, accepted, reached string
	}{
		{node.NodeState{Programmed: v1alpha1.ReasonNodeProgrammed},
			"True Programmed the node's network is as planned", "True Accepted nothing was left out", allReached},
		{node.NodeState{Programmed: v1alpha1.ReasonProgrammingFailed, Message: "no such device", Refused: "c2",
			Unreached: "g1,g2"}, "False ProgrammingFailed no such device", "False NetworksRefused c2",
			"False NotReached g1,g2"},
		{node.NodeState{Programmed: v1alpha1.ReasonNodeCleaned},
			"False Cleaned nothing of Sealane is left on the node", "True Accepted nothing was left out", allReached},
	} {
		if err := k.SetNodeState(t.Context(), s.state); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, &p); err != nil {
			t.Fatal(err)
		}
		got := map[corev1.PodConditionType]string{}
		for _, c := range p.Status.Conditions {
			got[c.Type] = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
		want := map[corev1.PodConditionType]string{
			corev1.PodReady: "True  ", v1alpha1.PodNodeProgrammed: s.programmed, v1alpha1.PodNetworksAccepted: s.accepted,
			v1alpha1.PodGatewaysReached: s.reached,
		}
		if !maps.Equal(got, want) {
			t.Errorf("conditions %q, want %q", got, want)
		}
	}
	p.Spec.Containers[0].Image = "another"
	if err := admin(t, own).Update(t.Context(), &p); !apierrors.IsForbidden(err) {
		t.Errorf("the agent's rights let it change an image: %v", err)
	}
}

func testStatus(t *testing.T, k *node.Kube, c client.Client) {
	at := metav1.Now().Rfc3339Copy()
	status := v1alpha1.GatewayStatus{
		HAState: v1alpha1.GatewayActive, Implementation: v1alpha1.CableUserspace, ReportedAt: &at,
		Endpoint: &v1alpha1.Endpoint{Gateway: "n1", NextPublicKey: "next", IPv4Probes: true},
		FlowHash: v1alpha1.FlowHashPorts,
		Keys:     &v1alpha1.GatewayKeys{Phase: v1alpha1.KeyOffered, MadeAt: at, Since: &at, Waiting: []string{"c2/g"}},
		Connections: []v1alpha1.Connection{{Cluster: "c2", Gateway: "g", Link: "sl-c0",
			Status: v1alpha1.ConnectionConnected, RTT: &v1alpha1.RTT{Last: 7}}},
	}
	for range 2 {
		if err := k.SetGatewayStatus(t.Context(), "n1", status); err != nil {
			t.Fatal(err)
		}
		var g v1alpha1.Gateway
		if err := c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &g); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(g.Status, status) {
			t.Errorf("status %+v, want %+v", g.Status, status)
		}
		status.Connections, status.FlowHash = nil, ""
		status.Endpoint = &v1alpha1.Endpoint{Gateway: "n1", PublicKey: "next"}
		status.Keys = &v1alpha1.GatewayKeys{Phase: v1alpha1.KeyCurrent, MadeAt: at}
	}
}

// testAlive: the Lease is renewed while the loop goes round, and not while what it reported is not written.
func testAlive(t *testing.T, k *node.Kube, c client.Client) {
	var g v1alpha1.Gateway
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n1"}, &g); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: v1alpha1.Namespace, Name: "sealane-node-n1"}
	var lease coordinationv1.Lease
	renewals := func(beats int) (count int) {
		var last time.Time
		for range beats {
			k.Alive(&g)
			<-time.After(500 * time.Millisecond)
			if c.Get(t.Context(), key, &lease) == nil && !lease.Spec.RenewTime.Time.Equal(last) {
				last, count = lease.Spec.RenewTime.Time, count+1
			}
		}
		return count
	}
	if got := renewals(15); got < 2 || got > 4 {
		t.Errorf("%d renewals in 7.5 s, want 3", got)
	}
	if o := lease.OwnerReferences; len(o) != 1 || o[0].UID != g.UID || *lease.Spec.HolderIdentity != "n1" {
		t.Errorf("Lease %+v", lease)
	}
	if err := k.SetGatewayStatus(t.Context(), "n2", v1alpha1.GatewayStatus{}); err == nil {
		t.Fatal("the status of another Gateway was written")
	}
	if got := renewals(8); got > 1 {
		t.Errorf("%d renewals after a status that was not written, want none", got-1)
	}
	testStatus(t, k, c)
	if got := renewals(8); got < 2 {
		t.Errorf("%d renewals once a status was written, want more", got-1)
	}
}

// testLostConnections: packets of the connections that the agent has are lost from one moment on, as those of an API
// server behind a load balancer that is gone, and new connections work. A change gets to the agent within 5 s, and it
// can write again.
func testLostConnections(t *testing.T, c client.Client, own *rest.Config) {
	const other = "127.0.0.9" // of the API server, for the agent
	own = rest.CopyConfig(own)
	own.Host, own.ServerName = strings.Replace(own.Host, "127.0.0.1", other, 1), "127.0.0.1"
	run(t, `nft add table ip lost
		nft add chain ip lost translate '{ type nat hook output priority -100; }'
		nft add rule ip lost translate ip daddr `+other+` dnat to 127.0.0.1`)
	t.Cleanup(func() { run(t, "nft delete table ip lost") })
	k := start(t, own)
	run(t, `nft -f - <<EOF
add chain ip lost dropped { type filter hook output priority filter; }
add rule ip lost dropped ct original ip daddr `+other+` ct state new ct mark set 7
add rule ip lost dropped ct original ip daddr `+other+` ct mark != 7 counter drop
EOF`)
	create(t, c, &v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	took := eventually(t, 6*time.Second, "a new Gateway", func() bool {
		o, _, err := k.Objects(t.Context())
		return err == nil && slices.ContainsFunc(o.Gateways, func(g v1alpha1.Gateway) bool { return g.Name == "n2" })
	})
	t.Logf("the change came after %s", took)
	status := v1alpha1.GatewayStatus{HAState: v1alpha1.GatewayActive, Implementation: v1alpha1.CableUserspace}
	if err := k.SetGatewayStatus(t.Context(), "n1", status); err != nil {
		t.Error(err)
	}
	run(t, "nft flush chain ip lost dropped; nft add rule ip lost dropped ct original ip daddr "+other+" drop")
	begun := time.Now()
	const within = 12 * time.Second
	if err := k.SetGatewayStatus(t.Context(), "n1", status); err == nil || time.Since(begun) > within {
		t.Errorf("while nothing passes: %v after %s", err, time.Since(begun))
	}
}

// testUninstalled: only the DaemonSet's own fate counts, whatever becomes of the agent's rights.
func testUninstalled(t *testing.T, c client.Client, config *rest.Config) {
	k := start(t, withToken(t, c, config))
	expect := func(when, want string) {
		t.Helper()
		var got string
		defer func() { t.Logf("%s: %s", when, got) }()
		eventually(t, 15*time.Second, when, func() bool {
			switch gone, err := k.Uninstalled(t.Context()); {
			case err != nil:
				got = string(apierrors.ReasonForError(err))
			default:
				got = fmt.Sprint(gone)
			}
			return got == want
		})
	}
	expect("installed", "false")
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node"}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
		t.Fatal(err)
	}
	remove(t, c, binding)
	expect("without rights", string(metav1.StatusReasonForbidden))
	binding.ResourceVersion = ""
	create(t, c, binding)
	expect("with rights again", "false")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node"}}
	remove(t, c, binding)
	remove(t, c, account)
	expect("without its ServiceAccount", string(metav1.StatusReasonUnauthorized))
	d := &unstructured.Unstructured{}
	d.SetAPIVersion("apps/v1")
	d.SetKind("DaemonSet")
	d.SetNamespace(v1alpha1.Namespace)
	d.SetName("sealane-node")
	remove(t, c, d)
	expect("without rights and DaemonSet", "true")
}

func remove(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// withToken authenticates by a token of the agent's ServiceAccount, as its pod does.
func withToken(t *testing.T, c client.Client, config *rest.Config) *rest.Config {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node"}}
	request := &authenticationv1.TokenRequest{}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(config)
	own.BearerToken = request.Status.Token
	return own
}

// start runs the agent's view of its cluster until the test ends, and waits for its caches.
func start(t *testing.T, config *rest.Config) *node.Kube {
	t.Helper()
	names := node.KubeNames{Namespace: v1alpha1.Namespace, DaemonSet: "sealane-node", Pod: "sealane-node-x",
		Node: "n1"}
	k, err := node.NewKube(config, names, func() {})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := k.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, 20*time.Second, "caches", func() bool {
		_, synced, err := k.Objects(t.Context())
		if err != nil {
			t.Log(err)
		}
		return err == nil && synced
	})
	return k
}

// A 404 of something between the agent and its API server says nothing of the DaemonSet.
func TestNotFoundByAProxyIsNotUninstalled(t *testing.T) {
	run(t, "ip link set lo up")
	for name, c := range map[string]struct {
		contentType, body string
		want              bool
	}{
		"a proxy's page": {"text/html", "<html>404 page not found</html>", false},
		"the API server's answer": {"application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure",
			"reason":"NotFound","details":{"name":"sealane-node","group":"apps","kind":"daemonsets"},"code":404}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			k, err := node.NewKube(&rest.Config{Host: server.URL}, node.KubeNames{Namespace: "ns", DaemonSet: "sealane-node"},
				func() {})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := k.Uninstalled(t.Context()); got != c.want || (err == nil) != c.want {
				t.Errorf("uninstalled %v, %v", got, err)
			}
		})
	}
}
