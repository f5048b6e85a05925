// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/dataplane/topology"
	"github.com/sealane-io/sealane/internal/apiserver"
)

// row is what one agent cost.
type row struct {
	Role  string
	Nodes int
	// Ready is how long it took until the agent had done its work for the first time.
	Ready time.Duration
	// Start, Idle and Join are bytes from the API server: until all was at rest, for each hour at rest, and when another
	// node came.
	Start, Idle, Join int64
	// CPU is of one processor, at rest. Memory is at the end of that, of which Own is not of files, in KiB: what several
	// processes share counts once.
	CPU         float64
	Memory, Own int
}

const (
	patience = 3 * time.Minute
	// settled is for how long little comes from the API server before a cluster is at rest.
	settled = 5 * time.Second
	// heartbeat is how often a kubelet writes the status of a node that does not change.
	heartbeat = 5 * time.Minute
)

// measure runs a cluster of nodes of which the first is a gateway and the second a worker.
func measure(ctx context.Context, o options, nodes int) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "sealane-nodes-run-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	crds, err := apiserver.CRDs() //nolint:contextcheck // it asks the go command where a module is
	if err != nil {
		return nil, err
	}
	api, err := apiserver.Launch(ctx, crds)
	if err != nil {
		return nil, err
	}
	defer api.Stop()
	c, err := populate(ctx, api.Config, nodes, o.remotes)
	if err != nil {
		return nil, err
	}
	var agents []*agent
	defer func() {
		for _, a := range slices.Backward(agents) {
			if err != nil {
				err = fmt.Errorf("%w\n%s: %s", err, a.role, a.tail())
			}
			a.stop()
		}
	}()
	begun := time.Now()
	cluster, err := start(ctx, dir, "cluster", api.Config, nil, o.agent, "cluster", "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0")
	if err != nil {
		return nil, err
	}
	agents = append(agents, cluster)
	rows = append(rows, row{Role: "cluster agent", Nodes: nodes})
	for n, role := range []string{"gateway", "worker"} {
		h, err := newHost(ctx, role, n)
		if err != nil {
			return nil, err
		}
		defer h.stop()
		a, err := start(ctx, dir, role, api.Config, h, o.agent, "node", "--node-name="+nameOf(n),
			"--pod-name=sealane-node-"+role, "--state-dir="+dir+"/"+role, "--supervise")
		if err != nil {
			return nil, err
		}
		agents = append(agents, a)
		rows = append(rows, row{Role: role, Nodes: nodes})
	}
	for i, a := range agents[1:] {
		if err := programmed(ctx, c, "sealane-node-"+a.role); err != nil {
			return nil, err
		}
		rows[i+1].Ready = time.Since(begun)
	}
	if err := rested(ctx, agents); err != nil {
		return nil, err
	}
	for i, a := range agents {
		rows[i].Start = a.relay.bytes.Load()
	}
	if err := idle(ctx, c, o.watch, agents, rows); err != nil {
		return nil, err
	}
	return rows, join(ctx, c, agents, rows)
}

// programmed waits until a node's agent says that its network is as planned.
func programmed(ctx context.Context, c client.Client, pod string) error {
	const every = 100 * time.Millisecond
	err := wait.PollUntilContextTimeout(ctx, every, patience, true, func(ctx context.Context) (bool, error) {
		var p corev1.Pod
		err := c.Get(ctx, types.NamespacedName{Namespace: v1alpha1.Namespace, Name: pod}, &p)
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == v1alpha1.PodNodeProgrammed && c.Status == corev1.ConditionTrue
		}), err
	})
	if err != nil {
		return fmt.Errorf("wait for %s to program its node: %w", pod, err)
	}
	return nil
}

// rested waits until the API server has had little to say to each agent for a while.
func rested(ctx context.Context, agents []*agent) error {
	const little = 64 << 10
	err := wait.PollUntilContextTimeout(ctx, 0, patience, true, func(ctx context.Context) (bool, error) {
		before := make([]int64, len(agents))
		for i, a := range agents {
			before[i] = a.relay.bytes.Load()
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(settled):
		}
		for i, a := range agents {
			if a.relay.bytes.Load()-before[i] > little {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the cluster to be at rest: %w", err)
	}
	return nil
}

// idle takes what agents cost while nothing happens but heartbeats.
func idle(ctx context.Context, c client.Client, watch time.Duration, agents []*agent, rows []row) error {
	beating, stop := context.WithCancel(ctx)
	beats := make(chan error, 1)
	go func() { beats <- beat(beating, c, rows[0].Nodes) }()
	before, bytes := make([]usage, len(agents)), make([]int64, len(agents))
	var err error
	for i, a := range agents {
		var also error
		before[i], also = used(a.cmd.Process.Pid)
		bytes[i], err = a.relay.bytes.Load(), errors.Join(err, also)
	}
	begun := time.Now()
	select {
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	case <-time.After(watch):
	}
	took := time.Since(begun)
	for i, a := range agents {
		after, also := used(a.cmd.Process.Pid)
		err = errors.Join(err, also)
		rows[i].Idle = int64(float64(a.relay.bytes.Load()-bytes[i]) * float64(time.Hour) / float64(took))
		rows[i].CPU = float64(after.cpu-before[i].cpu) / float64(took)
		rows[i].Memory, rows[i].Own = after.memory, after.own
	}
	stop()
	return errors.Join(err, <-beats)
}

// beat writes the heartbeats of all nodes, evenly over the time between two of one.
func beat(ctx context.Context, c client.Client, nodes int) error {
	tick := time.NewTicker(heartbeat / time.Duration(nodes))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions(time.Now())}})
		if err != nil {
			return err
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nameOf(n % nodes)}}
		err = c.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, patch))
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("write a heartbeat: %w", err)
		}
	}
}

// join takes what it costs that one more node comes: made, given its pods' network, and ready.
func join(ctx context.Context, c client.Client, agents []*agent, rows []row) error {
	before := make([]int64, len(agents))
	for i, a := range agents {
		before[i] = a.relay.bytes.Load()
	}
	if err := create(ctx, c, rows[0].Nodes); err != nil {
		return err
	}
	if err := rested(ctx, agents); err != nil {
		return err
	}
	for i, a := range agents {
		rows[i].Join = a.relay.bytes.Load() - before[i]
	}
	return nil
}

// usage of a process and its children.
type usage struct {
	cpu         time.Duration
	memory, own int
}

// used adds up the processes of a group.
func used(group int) (usage, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return usage{}, fmt.Errorf("list processes: %w", err)
	}
	var u usage
	found := false
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // no process, or one that has ended
		}
		// The fields of proc(5) after the command, which may have spaces: state, parent, group, and so on.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 13 || fields[2] != strconv.Itoa(group) {
			continue
		}
		found = true
		for _, ticks := range fields[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				return usage{}, fmt.Errorf("read processor time: %w", err)
			}
			u.cpu += time.Duration(n) * 10 * time.Millisecond
		}
		memory, err := os.ReadFile("/proc/" + e.Name() + "/smaps_rollup")
		if err != nil {
			return usage{}, fmt.Errorf("read how much memory a process has: %w", err)
		}
		u.memory += field(memory, "\nPss:")
		u.own += field(memory, "\nPss_Anon:")
	}
	if !found {
		return usage{}, fmt.Errorf("process %d has ended", group)
	}
	return u, nil
}

// field returns a number of a file as /proc/*/smaps_rollup is.
func field(text []byte, name string) int {
	_, after, _ := strings.Cut(string(text), name)
	words := strings.Fields(after)
	if len(words) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(words[0])
	return n
}

func nameOf(n int) string    { return fmt.Sprintf("node-%04d", n) }
func addressOf(n int) string { return fmt.Sprintf("172.31.%d.%d", (n+2)>>8, (n+2)&255) }
func cidrOf(n int) string    { return fmt.Sprintf("10.%d.%d.0/24", 200+n>>8, n&255) }

// populate creates the nodes, the pods of the two agents and what Karmada brings: a Peering with other clusters.
func populate(ctx context.Context, config *rest.Config, nodes, remotes int) (client.Client, error) {
	s := scheme.Scheme
	if err := v1alpha1.AddToScheme(s); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	for n := range nodes {
		if err := create(ctx, c, n); err != nil {
			return nil, err
		}
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}},
		&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName}, Spec: peering(remotes)},
	}
	for n, role := range []string{"gateway", "worker"} {
		objects = append(objects, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: "sealane-node-" + role},
			Spec: corev1.PodSpec{NodeName: nameOf(n), ServiceAccountName: "default",
				Containers: []corev1.Container{{Name: "node", Image: "agent"}}}})
	}
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("create %T: %w", o, err)
		}
	}
	return c, nil
}

// create makes a node as large as real ones are, the first of which is to be a gateway.
func create(ctx context.Context, c client.Client, n int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nameOf(n), Labels: map[string]string{},
		Annotations: map[string]string{}}}
	if n == 0 {
		node.Labels[v1alpha1.LabelGateway] = "true"
	}
	for _, l := range []string{"kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname",
		"node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
		"example.org/pool", "example.org/owner"} {
		node.Labels[l] = "some-value-of-a-label-" + strconv.Itoa(n)
		node.Annotations[l+"-annotation"] = strings.Repeat("some value of an annotation ", 4)
	}
	node.Spec = corev1.NodeSpec{PodCIDR: cidrOf(n), PodCIDRs: []string{cidrOf(n)}, ProviderID: "example:///" + nameOf(n)}
	if err := c.Create(ctx, node); err != nil {
		return fmt.Errorf("create a node: %w", err)
	}
	node.Status = corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addressOf(n)},
			{Type: corev1.NodeHostName, Address: nameOf(n)}},
		Conditions: conditions(time.Now()),
		Capacity: corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"),
			"pods": resource.MustParse("110")},
		NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0-40-amd64", OSImage: "Debian GNU/Linux 12 (bookworm)",
			ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.34.2", OperatingSystem: "linux",
			Architecture: "amd64"},
	}
	for i := range 50 { // as many as a kubelet lists
		name := fmt.Sprintf("registry.example.org/some/team/some-application-%02d", i)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{SizeBytes: int64(i) << 20,
			Names: []string{name + "@sha256:" + strings.Repeat("0123456789abcdef", 4), name + ":v1.2.3"}})
	}
	if err := c.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("report a node: %w", err)
	}
	return nil
}

func conditions(now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now)
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: "kubelet says: " + reason,
			LastHeartbeatTime: at, LastTransitionTime: metav1.NewTime(time.Unix(1_700_000_000, 0))}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
	}
}

// peering is what the broker says to a cluster of a set with so many others.
func peering(remotes int) v1alpha1.PeeringSpec {
	names := true
	spec := v1alpha1.PeeringSpec{
		Revision: 1, Phase: v1alpha1.MemberActive, ClusterSet: "set", ClusterID: "local", Shards: 4,
		Networks:    v1alpha1.Networks{PodCIDRs: []string{"10.200.0.0/14"}, ServiceCIDRs: []string{"10.96.0.0/16"}},
		Cable:       v1alpha1.CableSpec{Driver: v1alpha1.CableWireGuard, Port: 4500, VXLANPort: 4800},
		DNS:         v1alpha1.DNSSpec{Domains: []string{"clusterset.local"}, ClusterNames: &names},
		HealthCheck: v1alpha1.HealthCheckSpec{IntervalMilliseconds: 250, FailureThreshold: 4},
		Conditions:  []metav1.Condition{}, RemoteClusters: []v1alpha1.RemoteCluster{},
	}
	for n := range remotes {
		r := v1alpha1.RemoteCluster{Name: fmt.Sprintf("cluster-%03d", n), Networks: v1alpha1.Networks{
			PodCIDRs:     []string{fmt.Sprintf("10.%d.0.0/17", n)},
			ServiceCIDRs: []string{fmt.Sprintf("10.%d.128.0/17", n)}}}
		for slot := range 2 {
			r.Endpoints = append(r.Endpoints, v1alpha1.Endpoint{
				Gateway: fmt.Sprintf("gateway-%d", slot), Slot: int32(slot), MTU: 1420,
				PublicKey: topology.Key{1, byte(n), byte(slot)}.String(),
				Addresses: []v1alpha1.EndpointAddress{{Type: v1alpha1.AddressPublic,
					IP: fmt.Sprintf("198.18.%d.%d", n, slot+1)}},
			})
		}
		spec.RemoteClusters = append(spec.RemoteClusters, r)
	}
	return spec
}
