// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
	text, err := os.ReadFile("../../artifacts/deploy/node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		create(t, c, o)
	}
}

// The agent gets along with a real API server and the rights that its manifest gives it.
func TestKube(t *testing.T) {
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
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "agent"}}}
	create(t, c,
		&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: spec},
		&v1alpha1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"a": "b"}}, Spec: corev1.NodeSpec{PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node-x"}, Spec: pod},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "lb"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
	)
	klog.SetLogger(testr.New(t))
	ctrllog.SetLogger(testr.New(t))
	own := rest.CopyConfig(config)
	own.Impersonate.UserName = "system:serviceaccount:" + v1alpha1.Namespace + ":sealane-node"
	k, err := node.NewKube(own, node.KubeNames{Namespace: v1alpha1.Namespace, DaemonSet: "sealane-node", Pod: "sealane-node-x"}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := k.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var o node.Objects
	eventually(t, 20*time.Second, "caches", func() bool {
		var synced bool
		if o, synced, err = k.Objects(t.Context()); err != nil {
			t.Log(err)
		}
		return err == nil && synced
	})
	if o.Peering == nil || len(o.Gateways) != 1 || len(o.Nodes) != 1 || o.Nodes[0].Labels != nil || o.Nodes[0].Spec.PodCIDR == "" {
		t.Errorf("objects %+v", o)
	}
	t.Run("status", func(t *testing.T) { testStatus(t, k, c) })
	t.Run("state", func(t *testing.T) {
		if err := k.SetNodeState(t.Context(), node.NodeProgrammed); err != nil {
			t.Fatal(err)
		}
		var p corev1.Pod
		err := c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.Namespace, Name: "sealane-node-x"}, &p)
		if err != nil || p.Annotations[node.NodeState] != node.NodeProgrammed {
			t.Errorf("annotations %v, %v", p.Annotations, err)
		}
	})
	t.Run("load balancer", func(t *testing.T) {
		if _, err := k.LoadBalancer(t.Context(), "lb"); err != nil {
			t.Error(err)
		}
	})
	t.Run("uninstalled", func(t *testing.T) { testUninstalled(t, k, c) })
}

func testStatus(t *testing.T, k *node.Kube, c client.Client) {
	at := metav1.Now().Rfc3339Copy()
	status := v1alpha1.GatewayStatus{
		HAState: v1alpha1.GatewayActive, Implementation: v1alpha1.CableUserspace, ReportedAt: &at,
		Endpoint: &v1alpha1.Endpoint{Gateway: "n1"},
		Connections: []v1alpha1.Connection{{Cluster: "c2", Gateway: "g", Link: "sl-wg0",
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
		if len(g.Status.Connections) != len(status.Connections) || g.Status.Endpoint == nil {
			t.Errorf("status %+v, want %+v", g.Status, status)
		}
		status.Connections = nil
	}
}

func testUninstalled(t *testing.T, k *node.Kube, c client.Client) {
	expect := func(want bool, when string) {
		t.Helper()
		eventually(t, 10*time.Second, when, func() bool {
			got, err := k.Uninstalled(t.Context())
			return err == nil && got == want
		})
	}
	expect(false, "installed")
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node"}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	expect(true, "without rights")
	binding.ResourceVersion = ""
	create(t, c, binding)
	expect(false, "with rights again")
	d := &unstructured.Unstructured{}
	d.SetAPIVersion("apps/v1")
	d.SetKind("DaemonSet")
	d.SetNamespace(v1alpha1.Namespace)
	d.SetName("sealane-node")
	if err := c.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	expect(true, "without daemonset")
}
