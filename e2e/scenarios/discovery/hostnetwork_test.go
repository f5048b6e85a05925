// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/e2e/suite"
)

// hostPort is where the servers of this file listen on their nodes.
const hostPort = 18080

// onTheHostNetwork: the pods behind a Service have their nodes' addresses, which are not routed between clusters. All
// of them answer, on the gateway and on the worker, by the ClusterIP of their cluster; without one the exporter is
// told.
func onTheHostNetwork(t *testing.T) {
	s := suite.NewNamespace(t, "c1", "c2")
	selected := func(web *corev1.Service) {
		web.Spec.Selector = map[string]string{"app": "web"}
		web.Spec.Ports[0].TargetPort = intstr.FromInt32(hostPort)
	}
	web := suite.Service(selected)
	s.Create("c2", web)
	nodes := []string{"c2-gw", "c2-worker"}
	for _, node := range nodes {
		pod := suite.WhereamiPods("web")
		pod.Name, pod.Spec.NodeName, pod.Spec.HostNetwork = "web-"+node, node, true
		server := &pod.Spec.Containers[0]
		server.Args = []string{"-listen", net.JoinHostPort("", strconv.Itoa(hostPort))}
		s.Create("c2", &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
	}
	s.Export("c2")
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionTrue, mcs.ServiceExportReasonExported, "c2")
	s.WaitEndpoints("c1", map[string]int{"c2": 1})
	for _, client := range []string{"client-c1-worker", suite.ClientOf("c1")} {
		suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
			answers, err := suite.Requests(ctx, "c1", client, "http://"+s.DNSName(), 40)
			if err != nil {
				return err
			}
			found := map[string]int{}
			for _, a := range answers {
				found[a.Node]++
			}
			if len(found) != len(nodes) || found[nodes[0]] == 0 || found[nodes[1]] == 0 {
				return fmt.Errorf("%s: expected answers of both nodes of c2, found %v", client, found)
			}
			return nil
		})
	}

	s.Delete("c2", suite.Service())
	s.WaitGone("c1")
	s.Create("c2", suite.Service(selected, suite.Headless))
	s.WaitCondition(mcs.ServiceExportConditionReady, metav1.ConditionFalse, "BackendsNotRouted", "c2")
	suite.Eventually(t, suite.Patience, func(ctx context.Context) error {
		out, err := suite.TryPlugin(ctx, "show", "problems", "-C", "c2")
		if !strings.Contains(out, s.Name+"/web") || !strings.Contains(out, "BackendsNotRouted") {
			return errors.Join(fmt.Errorf("expected BackendsNotRouted of %s/web in show problems, found %s", s.Name, out), err)
		}
		return nil
	})
}
