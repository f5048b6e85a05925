// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
	"github.com/sealane-io/sealane/internal/probe"
)

// A namespace of verify has a name that begins so, the label, and in the annotation when the run is over.
const (
	namePrefix      = "sealane-verify-"
	labelTrial      = "sealane.io/verify"
	annotationUntil = "sealane.io/verify-until"
	// labelServes names the role of the node that a server is on.
	labelServes = "sealane.io/verify-server"
)

func (t *trial) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: t.namespace, Name: name,
		Labels: map[string]string{labelManagedBy: fieldManager, labelTrial: "true"}}
}

// namespaceObject lets in pods on the network of the node, which its clients are that ask as a node. All else that a
// pod could be allowed, these do without.
func (t *trial) namespaceObject() *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: t.meta(t.namespace)}
	n.Namespace = ""
	n.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	n.Annotations = map[string]string{annotationUntil: t.until.UTC().Format(time.RFC3339)}
	return n
}

// service of the server on a node of a role, by every family that the cluster has.
func (t *trial) service(name string, role matrix.Role, clusterIP string) *corev1.Service {
	return &corev1.Service{ObjectMeta: t.meta(name), Spec: corev1.ServiceSpec{
		ClusterIP: clusterIP, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
		Selector: map[string]string{labelServes: string(role)},
		Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: probe.Port},
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: probe.Port},
		},
	}}
}

// export of a Service to the members that are verified, and to no other, in the mode that the column is about.
func (t *trial) export(service string) *mcsv1alpha1.ServiceExport {
	e := &mcsv1alpha1.ServiceExport{ObjectMeta: t.meta(service)}
	e.Annotations = map[string]string{
		v1alpha1.AnnotationImportClusters: strings.Join(t.clusters, ","),
		v1alpha1.AnnotationServiceMode:    string(v1alpha1.ServiceModeClusterSetIP),
	}
	return e
}

func serverName(role matrix.Role) string { return "server-" + string(role) }

func clientName(p matrix.Place) string { return string(p.Kind) + "-" + string(p.Role) }

func (t *trial) serverPod(s *site, server *matrix.Server) *corev1.Pod {
	pod := t.pod(s, serverName(server.Role), server.Place,
		"server", "--name="+server.Name(), "--token="+t.token)
	pod.Labels[labelServes] = string(server.Role)
	return pod
}

func (t *trial) clientPod(s *site, at matrix.Place, checks []probe.Check) *corev1.Pod {
	args := []string{"client", "--token=" + t.token, "--patience=" + askPatience.String()}
	for _, c := range checks {
		args = append(args, c.String())
	}
	return t.client(s, at, args...)
}

// client at a place, with what it is to do.
func (t *trial) client(s *site, at matrix.Place, args ...string) *corev1.Pod {
	pod := t.pod(s, clientName(at), at, args...)
	if at.Kind == matrix.Host {
		pod.Spec.HostNetwork, pod.Spec.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
	}
	return pod
}

// pod of a probe: on its node, whatever taints that has, without rights, and for a few minutes at most.
func (t *trial) pod(s *site, name string, at matrix.Place, args ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: t.meta(name), Spec: corev1.PodSpec{
		NodeName:                      at.Node,
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		RestartPolicy:                 corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:         ptr.To(int64(lifetime.Seconds())),
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		ImagePullSecrets:              s.pullSecrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), RunAsGroup: ptr.To(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "probe", Image: s.image, ImagePullPolicy: corev1.PullIfNotPresent, Args: append([]string{"probe"}, args...),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
			}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}}
}

// remove deletes the namespace of the trial everywhere, and waits until it is gone.
func (t *trial) remove(ctx context.Context) error {
	left := make([]error, len(t.sites))
	var g errgroup.Group
	for i, s := range t.sites {
		g.Go(func() error {
			if err := s.api.removeTrial(ctx, t.namespace); err != nil {
				left[i] = &finding{
					expected: fmt.Sprintf("namespace %s of %s to be removed within %s", t.namespace, s.name, cleanPatience),
					found:    err.Error(),
					remedy:   fmt.Sprintf("kubectl --context %s delete namespace %s", s.name, t.namespace),
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(left...)
}

// removeTrials deletes the namespaces of trials that were over at a time; of all trials, if that is zero.
func (a *api) removeTrials(ctx context.Context, at time.Time) error {
	var namespaces corev1.NamespaceList
	if err := a.List(ctx, &namespaces, client.HasLabels{labelTrial}); err != nil {
		return fmt.Errorf("list the namespaces of verify: %w", err)
	}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		until, err := time.Parse(time.RFC3339, n.Annotations[annotationUntil])
		if !strings.HasPrefix(n.Name, namePrefix) || err == nil && !at.IsZero() && at.Before(until) {
			continue
		}
		if err := a.removeTrial(ctx, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// removeTrial deletes a namespace and waits until it is gone. An API server that does not answer is asked again.
func (a *api) removeTrial(ctx context.Context, name string) error {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	last := errors.New("it is there still, though deleted")
	err := until(ctx, func(ctx context.Context) (bool, error) {
		err := a.Delete(ctx, n)
		if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			last = err
		}
		return gone(err), nil
	})
	if err != nil {
		return fmt.Errorf("delete namespace %s: %w", name, last)
	}
	return nil
}
