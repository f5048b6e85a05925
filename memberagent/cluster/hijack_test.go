// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/memberagent/cluster/hijack"
)

// spiderCoordinators are that kind with the fields, types and defaults of Spiderpool 1.0 which matter to others. What a
// schema does not know is dropped from a write.
const spiderCoordinators = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: spidercoordinators.spiderpool.spidernet.io}
spec:
  group: spiderpool.spidernet.io
  names: {kind: SpiderCoordinator, listKind: SpiderCoordinatorList, plural: spidercoordinators,
    singular: spidercoordinator, shortNames: [scc], categories: [spiderpool]}
  scope: Cluster
  versions:
  - name: v2beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            properties:
              hijackCIDR: {type: array, items: {type: string}}
              hostRuleTable: {type: integer, default: 500}
              mode: {type: string, default: auto, enum: [auto, underlay, overlay, disabled]}
              podCIDRType: {type: string, enum: [auto, cluster, calico, cilium, none]}
              tunePodRoutes: {type: boolean, default: true}
          status:
            type: object
            required: [phase]
            properties:
              phase: {type: string}
              overlayPodCIDR: {type: array, items: {type: string}}
              serviceCIDR: {type: array, items: {type: string}}
`

const spiderCoordinator = `
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderCoordinator
metadata: {name: default, finalizers: [spiderpool.spidernet.io]}
spec: {hijackCIDR: [169.254.0.0/16], podCIDRType: auto}
`

// object makes one of YAML.
func (m *member) object(text string) *unstructured.Unstructured {
	m.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), o); err != nil {
		m.t.Fatal(err)
	}
	m.eventually("the API server takes a "+o.GetKind(), func(ctx context.Context) error {
		return m.Create(ctx, o)
	})
	return o
}

// hijacked waits until the settings have these networks, and beside the fields that came by defaults nothing else.
func (m *member) hijacked(want string) {
	m.t.Helper()
	m.eventually("hijackCIDR", func(ctx context.Context) error {
		o, err := hijack.Coordinator(ctx, m)
		if err != nil || o == nil {
			return errors.Join(err, errors.New("no settings"))
		}
		list, _, err := unstructured.NestedStringSlice(o.Object, "spec", "hijackCIDR")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "podCIDRType")
		return errors.Join(err, expect("networks", strings.Join(list, " "), want), expect("podCIDRType", kind, "auto"),
			expect("marked", o.GetAnnotations()[hijack.Annotation] != "", want != "169.254.0.0/16"))
	})
}

// TestPodsOfAnUnderlayAreToldOfOtherClusters: with the rights that the agent is installed with, the networks of other
// clusters are among those that Spiderpool has pods route by their nodes, until the cluster leaves; and where there is
// no Spiderpool it is said which they are.
func TestPodsOfAnUnderlayAreToldOfOtherClusters(t *testing.T) {
	m := newMember(t)
	p := m.peering(1)
	change(m, p, func(p *v1alpha1.Peering) {
		p.Spec.Override.PodCIDRs = []string{"192.0.2.0/24"}
		p.Spec.RemoteClusters[0].Networks = v1alpha1.Networks{PodCIDRs: []string{"10.9.0.0/16"},
			ServiceCIDRs: []string{"10.99.0.0/16"}}
	})
	m.start(m.config)
	m.peeringCondition("UnderlayRouted", metav1.ConditionUnknown, "NotPublished", "10.9.0.0/16, 10.99.0.0/16")
	// Looked at once a minute, and when something changes.
	again := func(to func(*v1alpha1.Peering)) { change(m, p, to) }
	again(func(p *v1alpha1.Peering) { p.Spec.Override.PodCIDRs = []string{"10.8.0.0/16"} })
	m.eventually("no word of an overlay", func(ctx context.Context) error {
		p := &v1alpha1.Peering{}
		err := m.Get(ctx, types.NamespacedName{Name: v1alpha1.PeeringName}, p)
		return errors.Join(err, expect("there",
			meta.FindStatusCondition(p.Status.Conditions, "UnderlayRouted") != nil, false))
	})
	m.object(spiderCoordinators)
	m.object(spiderCoordinator)
	again(func(p *v1alpha1.Peering) { p.Spec.Revision++ })
	m.hijacked("169.254.0.0/16 10.9.0.0/16 10.99.0.0/16")
	m.peeringCondition("UnderlayRouted", metav1.ConditionTrue, "Published", "SpiderCoordinator default")
	again(func(p *v1alpha1.Peering) { p.Spec.RemoteClusters[0].Networks.PodCIDRs = []string{"10.7.0.0/16"} })
	m.hijacked("169.254.0.0/16 10.7.0.0/16 10.99.0.0/16")
	again(func(p *v1alpha1.Peering) { p.Spec.Phase = v1alpha1.MemberLeaving })
	m.hijacked("169.254.0.0/16")
	m.eventually("cleaned", func(ctx context.Context) error {
		p := &v1alpha1.Peering{}
		err := m.Get(ctx, client.ObjectKey{Name: v1alpha1.PeeringName}, p)
		return errors.Join(err, expect("cleaned", p.Status.Cleaned, true))
	})
}
