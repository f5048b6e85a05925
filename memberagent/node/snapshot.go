// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// snapshot keeps the last known objects on disk, for a restart while the API server is away: userspace
// cables end with the process and have to be made anew.
type snapshot struct {
	path string
	kept []byte
}

func newSnapshot(dir string) snapshot { return snapshot{path: filepath.Join(dir, "objects.json")} }

// save writes the essence of objects if it tells something new.
func (s *snapshot) save(essence Objects) error {
	text, err := json.Marshal(essence)
	if err != nil || bytes.Equal(text, s.kept) {
		return err
	}
	if err := replaceFile(s.path, text); err != nil {
		return err
	}
	s.kept = text
	return nil
}

// replaceFile leaves the old text or the new one, whenever the machine stops.
func replaceFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(path, text, 0o600)
}

// load returns the objects, and whether there are any.
func (s *snapshot) load() (Objects, bool, error) {
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Objects{}, false, nil
	}
	if err != nil {
		return Objects{}, false, err
	}
	var o Objects
	if err := json.Unmarshal(text, &o); err != nil {
		return Objects{}, false, fmt.Errorf("read %s: %w: it is remade once the API server answers", s.path, err)
	}
	return o, o.Peering != nil, nil
}

func (s *snapshot) remove() error {
	if err := os.Remove(s.path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lowered returns the connections of a gateway that have an MTU, and of them which and what.
func lowered(s v1alpha1.GatewayStatus) []v1alpha1.Connection {
	var out []v1alpha1.Connection
	for _, c := range s.Connections {
		if c.MTU > 0 {
			out = append(out, v1alpha1.Connection{Cluster: c.Cluster, Gateway: c.Gateway, Slot: c.Slot, MTU: c.MTU})
		}
	}
	return out
}

// essence is what the topology is built from.
func essence(o Objects) Objects {
	name := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: m.Name, Annotations: m.Annotations}
	}
	out := Objects{
		Peering:    &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: o.Peering.Name}, Spec: o.Peering.Spec},
		APIServers: o.APIServers,
	}
	for _, g := range o.Gateways {
		out.Gateways = append(out.Gateways, v1alpha1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Name: g.Name}, Spec: g.Spec,
			Status: v1alpha1.GatewayStatus{Endpoint: g.Status.Endpoint, Connections: lowered(g.Status)},
		})
	}
	for _, g := range o.GlobalAllocations {
		out.GlobalAllocations = append(out.GlobalAllocations, v1alpha1.GlobalAllocation{
			ObjectMeta: metav1.ObjectMeta{Name: g.Name, CreationTimestamp: g.CreationTimestamp}, Spec: g.Spec,
		})
	}
	if c := o.ClusterGlobalEgressIP; c != nil {
		out.ClusterGlobalEgressIP = &v1alpha1.ClusterGlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: c.Name},
			Status: v1alpha1.ClusterGlobalEgressIPStatus{CIDR: c.Status.CIDR, Range: c.Status.Range}}
	}
	for _, n := range o.NodeNetworks {
		out.NodeNetworks = append(out.NodeNetworks, v1alpha1.NodeNetwork{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: v1alpha1.NodeNetworkSpec{PodCIDRs: n.Spec.PodCIDRs},
		})
	}
	for _, n := range o.Nodes {
		out.Nodes = append(out.Nodes, corev1.Node{
			ObjectMeta: name(n.ObjectMeta), Spec: n.Spec, Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
		})
	}
	return out
}
