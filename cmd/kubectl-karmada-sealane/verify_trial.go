// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/matrix"
)

const (
	// startPatience is how long a pod has to start. Its image is on the node.
	startPatience = 30 * time.Second
	// askPatience is how long a client tries again what fails: exports take a second, and a resolver may keep a denial
	// for as long as the ClusterSet's TTL says.
	askPatience = 15 * time.Second
	// lifetime is after which the pods of a run that was killed end by themselves.
	lifetime = 4 * time.Minute
)

// trial is one run of verify.
type trial struct {
	// namespace that is made in every member, and the token of all requests.
	namespace, token string
	// until is when the run is over in any case.
	until    time.Time
	set      *v1alpha1.ClusterSet
	clusters []string
	sites    []*site
}

// each calls f for all members in parallel.
func (t *trial) each(ctx context.Context, f func(context.Context, *site) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range t.sites {
		g.Go(func() error {
			if err := f(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// createServers makes the namespace, and in it the servers with their Services, which are exported to the other members
// of the trial only, and decides where clients will be. That a pod cannot be made is a result; that the rest cannot is
// an error.
func (t *trial) createServers(ctx context.Context, s *site) error {
	if err := s.api.Create(ctx, t.namespaceObject()); err != nil {
		return fmt.Errorf("create namespace %s: %w", t.namespace, err)
	}
	if err := t.copyPullSecrets(ctx, s); err != nil {
		return err
	}
	for _, role := range s.roles() {
		server := matrix.Server{Place: s.place(matrix.Pod, role), Service: string(role) + "-" + s.name}
		server.Headless = server.Service + "-pods"
		service := t.service(server.Service, role, "")
		for _, object := range []client.Object{
			service, t.service(server.Headless, role, corev1.ClusterIPNone), t.export(server.Service), t.export(server.Headless),
		} {
			if err := s.api.Create(ctx, object); err != nil {
				return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
			}
		}
		server.ClusterIPs = addresses(service.Spec.ClusterIPs)
		if err := s.api.Create(ctx, t.serverPod(s, &server)); err != nil {
			server.Failure = "the server could not be created: " + err.Error()
		}
		s.servers = append(s.servers, server)
		for _, kind := range matrix.Kinds() {
			s.clients = append(s.clients, matrix.Client{Place: s.place(kind, role)})
		}
	}
	return nil
}

// copyPullSecrets makes the Secrets by which the agents' image is pulled, where there are such.
func (t *trial) copyPullSecrets(ctx context.Context, s *site) error {
	for _, ref := range s.pullSecrets {
		var secret corev1.Secret
		err := s.api.Get(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: ref.Name}, &secret)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("get the secret that pulls the agents' image: %w", err)
		}
		c := &corev1.Secret{ObjectMeta: t.meta(ref.Name), Type: secret.Type, Data: secret.Data}
		if err := s.api.Create(ctx, c); err != nil {
			return fmt.Errorf("create secret %s: %w", ref.Name, err)
		}
	}
	return nil
}

func addresses(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// awaitServers waits until the servers run, and takes down their addresses, or why they do not.
func (t *trial) awaitServers(ctx context.Context, s *site) error {
	patient, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for i := range s.servers {
		server := &s.servers[i]
		if server.Failure != "" {
			continue
		}
		var pod corev1.Pod
		key := client.ObjectKey{Namespace: t.namespace, Name: serverName(server.Role)}
		err := until(patient, func(ctx context.Context) (bool, error) {
			err := s.api.Get(ctx, key, &pod)
			if err != nil {
				return false, err
			}
			return podReady(&pod) || over(&pod), nil
		})
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil || !podReady(&pod) {
			server.Failure = "the server did not start: " + state(&pod, err)
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			server.PodIPs = append(server.PodIPs, addresses([]string{ip.IP})...)
		}
		if len(server.PodIPs) == 0 {
			server.Failure = "the server's pod has no address"
		}
	}
	return nil
}

// awaitImports waits until a member imports what the others export, for as long as a pod has to start. What it does not
// import then fails in the checks.
func (t *trial) awaitImports(ctx context.Context, s *site) error {
	wanted := map[string]bool{}
	for _, server := range t.servers() {
		if server.Cluster != s.name {
			wanted[server.Service], wanted[server.Headless] = true, true
		}
	}
	patient, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	_ = until(patient, func(ctx context.Context) (bool, error) {
		var imports mcsv1alpha1.ServiceImportList
		if err := s.api.List(ctx, &imports, client.InNamespace(t.namespace)); err != nil {
			return false, nil //nolint:nilerr // asked again
		}
		for i := range imports.Items {
			delete(wanted, imports.Items[i].Name)
		}
		return len(wanted) == 0, nil
	})
	return ctx.Err()
}

// over says that a pod will not run any more.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// state says how a pod is that is not as it should be.
func state(pod *corev1.Pod, err error) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return fmt.Sprintf("%s: %s", w.Reason, w.Message)
		}
		if e := c.State.Terminated; e != nil {
			return fmt.Sprintf("%s, exit code %d: %s", e.Reason, e.ExitCode, e.Message)
		}
	}
	if pod.Status.Reason != "" || pod.Status.Message != "" {
		return fmt.Sprintf("%s: %s", pod.Status.Reason, pod.Status.Message)
	}
	if err != nil && pod.Name == "" {
		return err.Error()
	}
	return fmt.Sprintf("pod %s is %q after %s", pod.Name, pod.Status.Phase, startPatience)
}

// servers of all members.
func (t *trial) servers() []matrix.Server {
	var out []matrix.Server
	for _, s := range t.sites {
		out = append(out, s.servers...)
	}
	return out
}

func (t *trial) serversRunning() int {
	n := 0
	for _, s := range t.servers() {
		if s.Failure == "" {
			n++
		}
	}
	return n
}

// clusterset is all that the checks are made of.
func (t *trial) clusterset() matrix.Clusterset {
	names := t.set.Spec.DNS.ClusterNames
	out := matrix.Clusterset{
		Servers: t.servers(), Namespace: t.namespace, Domain: t.set.Spec.DNS.Domains[0],
		ClusterNames: names == nil || *names,
		Global: func(cluster, to string) bool {
			for _, s := range t.sites {
				if s.name == cluster {
					return s.knownGlobally(to)
				}
			}
			return false
		},
	}
	for _, s := range t.sites {
		out.Clients = append(out.Clients, s.clients...)
	}
	return out
}
