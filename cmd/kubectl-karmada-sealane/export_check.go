// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/importscope"
)

// check compares what was asked for with what is there: clusters that Karmada knows, the Service in one of them,
// and the terms that it allows.
func (e *export) check(ctx context.Context, target *api) error {
	var clusters []clusterv1alpha1.Cluster
	if e.member == "" {
		var err error
		if clusters, err = e.karmadaClusters(ctx, target); err != nil {
			return err
		}
		if err := chosen(e.clusters, clusters); err != nil {
			return err
		}
		if err := chosen(e.terms.importers, clusters); err != nil {
			return err
		}
	}
	if err := e.checkService(ctx, target); err != nil {
		return err
	}
	if !e.terms.given(flagSelector) || e.member != "" {
		return nil
	}
	parsed, err := importscope.Selector(e.terms.selector)
	if err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(parsed)
	if err != nil {
		return err
	}
	for i := range clusters {
		if selector.Matches(labels.Set(clusters[i].Labels)) {
			return nil
		}
	}
	e.note("no cluster has labels that match %q now: until one has, only the exporting clusters import it; "+
		"see kubectl get clusters --show-labels", e.terms.selector)
	return nil
}

// checkService sees that the Service exists where the ServiceExport is created or, on the Karmada API, in a cluster
// that is to export it, and that it can be exported on these terms.
func (e *export) checkService(ctx context.Context, target *api) error {
	var service corev1.Service
	found, err := target.find(ctx, client.ObjectKey{Namespace: e.namespace, Name: e.service}, &service)
	switch {
	case err != nil:
		return err
	case found:
		return e.checkType(&service)
	case e.allowMissing:
		e.note("there is no Service %s in namespace %s yet: the export waits for it (Valid=False, NoService)",
			e.service, e.namespace)
		return nil
	case e.member != "":
		return e.noService("none in the cluster of context " + e.member)
	}
	without, unknown, err := e.lookInMembers(ctx, target, &service)
	switch {
	case err != nil:
		return err
	case service.Name != "":
		return e.checkType(&service)
	case len(unknown) > 0:
		e.note("no Service %s in namespace %s on the Karmada API, and these clusters could not be asked:\n%s",
			e.service, e.namespace, strings.Join(unknown, "\n"))
		return nil
	case len(without) == 0:
		return e.noService("none on the Karmada API, and there is no member yet")
	}
	return e.noService("none on the Karmada API, nor in " + strings.Join(without, ", "))
}

func (e *export) noService(found string) error {
	return &finding{
		expected: fmt.Sprintf("a Service %s in namespace %s", e.service, e.namespace),
		found:    found,
		remedy:   "check name and namespace (-n), or export it before it exists with --allow-missing",
	}
}

func (e *export) checkType(service *corev1.Service) error {
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return &finding{
			expected: fmt.Sprintf("Service %s/%s to have addresses", e.namespace, e.service),
			found:    "it is of type ExternalName", remedy: "export a Service of type ClusterIP, or a headless one",
		}
	case service.Spec.ClusterIP == corev1.ClusterIPNone && e.terms.given(flagMode):
		return &finding{
			expected: "--mode for a Service that has a ClusterIP",
			found: fmt.Sprintf("%s/%s is headless: its name answers the pods' addresses in either mode",
				e.namespace, e.service),
			remedy: "leave --mode out",
		}
	}
	return nil
}

// lookInMembers looks for the Service in the clusters of -C, or all members, and reads one that it finds into
// service. Without are the clusters that lack it, unknown those that could not be asked and why.
func (e *export) lookInMembers(ctx context.Context, karmada *api, service *corev1.Service) (
	without, unknown []string, err error,
) {
	members, err := karmada.members(ctx)
	if err != nil && !gone(err) {
		return nil, nil, err
	}
	for _, name := range e.clusters {
		if !slices.ContainsFunc(members, func(m v1alpha1.Member) bool { return m.Name == name }) {
			unknown = append(unknown, name+": it is no member")
		}
	}
	var mu sync.Mutex
	var g errgroup.Group
	for i := range members {
		m := &members[i]
		if len(e.clusters) > 0 && !slices.Contains(e.clusters, m.Name) {
			continue
		}
		g.Go(func() error {
			var there corev1.Service
			found, err := e.findInMember(ctx, karmada, m, &there)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				unknown = append(unknown, m.Name+": "+err.Error())
			case found:
				*service = there
			default:
				without = append(without, m.Name)
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.Sort(without)
	slices.Sort(unknown)
	return without, unknown, nil
}

func (e *export) findInMember(ctx context.Context, karmada *api, m *v1alpha1.Member,
	service *corev1.Service) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, defaultMemberTimeout)
	defer cancel()
	member, err := e.options.member(ctx, karmada, m)
	if err != nil {
		return false, err
	}
	return member.find(ctx, client.ObjectKey{Namespace: e.namespace, Name: e.service}, service)
}

// ownOfMember refuses a ServiceExport in a member that Karmada put there: Karmada would undo what is done to it.
func (e *export) ownOfMember(existing client.Object, remedy string) error {
	if e.member == "" || existing.GetAnnotations()[workv1alpha2.WorkNameAnnotation] == "" {
		return nil
	}
	return &finding{
		expected: fmt.Sprintf("%s in the cluster of context %s to be that cluster's own", describe(existing), e.member),
		found:    "Karmada put it there, and keeps it as the Karmada API has it or is about to delete it",
		remedy:   remedy,
	}
}

// ensureNamespace sees that the namespace exists, or creates it if that was asked for.
func (e *export) ensureNamespace(ctx context.Context, target *api) error {
	var ns corev1.Namespace
	err := target.Get(ctx, client.ObjectKey{Name: e.namespace}, &ns)
	switch {
	case err == nil && ns.DeletionTimestamp != nil:
		return &finding{
			expected: fmt.Sprintf("namespace %s at %s", e.namespace, target.config.Host),
			found:    "it is being deleted", remedy: "wait until it is gone, and create it anew",
		}
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get namespace %s: %w", e.namespace, err)
	case e.createNamespace:
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
		if err := target.Create(ctx, ns, client.FieldOwner(fieldManager)); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create namespace %s: %w", e.namespace, err)
		}
		fmt.Fprintf(e.Out, "Namespace %s created\n", e.namespace)
		return nil
	}
	where := "the Karmada API (" + target.config.Host + ")"
	if e.member != "" {
		where = "the cluster of context " + e.member
	}
	return &finding{
		expected: fmt.Sprintf("namespace %s on %s", e.namespace, where),
		found:    "no such namespace",
		remedy:   "name the namespace of the service with -n, or have it created: --create-namespace",
	}
}
