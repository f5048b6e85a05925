// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// member is one cluster while it boots.
type member struct {
	*Lab
	index    int
	ca       *authority
	progress *progress
}

func (m member) cluster() Cluster { return m.Topology.Clusters[m.index] }

// bootControlPlane starts the API server and what belongs to it, and joins the
// cluster to Karmada once that is ready.
func (m member) bootControlPlane(ctx context.Context, karmada <-chan struct{}) error {
	c := m.cluster()
	err := m.progress.Step(c.Name+" control plane", func() error {
		if err := m.startMemberAPI(m.index); err != nil {
			return err
		}
		if err := m.apiReady(ctx, c.Name); err != nil {
			return err
		}
		if err := m.startMemberControllers(m.index); err != nil {
			return err
		}
		if err := m.addServiceCIDRs(ctx, m.index); err != nil {
			return err
		}
		if err := m.applyKubeadmConfig(ctx); err != nil {
			return err
		}
		if err := m.applyFlannel(ctx); err != nil {
			return err
		}
		return m.applyDNS(ctx)
	})
	if err != nil {
		return err
	}
	select {
	case <-karmada:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return m.progress.Step(fmt.Sprintf("%s joined (%s)", c.Name, c.Mode), func() error {
		if err := m.join(ctx, m.index); err != nil {
			return err
		}
		return m.clusterReady(ctx, m.index)
	})
}

// bootNodes brings the nodes to Ready with all images in them.
func (m member) bootNodes(ctx context.Context, images <-chan struct{}, archives []string) error {
	c := m.cluster()
	err := m.progress.Step(c.Name+" nodes", func() error {
		g, ctx := errgroup.WithContext(ctx)
		for j := range c.Nodes {
			g.Go(func() error { return m.bootNode(ctx, j, images, archives) })
		}
		g.Go(func() error { return m.nodesReady(ctx, m.index) })
		return g.Wait()
	})
	if err != nil {
		return err
	}
	return m.progress.Step(c.Name+" DNS", func() error { return m.dnsReady(ctx) })
}

func (m member) bootNode(ctx context.Context, j int, images <-chan struct{}, archives []string) error {
	c := m.cluster()
	if err := m.startRuntime(ctx, m.index, j); err != nil {
		return err
	}
	if err := m.apiReady(ctx, c.Name); err != nil {
		return err
	}
	if err := m.registerNode(ctx, m.index, j); err != nil {
		return err
	}
	if err := m.startFlannel(ctx, m.index, j, m.ca); err != nil {
		return err
	}
	if err := m.startNode(m.index, j, m.ca); err != nil {
		return err
	}
	select {
	case <-images:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := m.loadOwnImages(ctx, c.Nodes[j].Name); err != nil {
		return err
	}
	for _, archive := range archives {
		if err := m.loadImages(ctx, c.Nodes[j].Name, archive); err != nil {
			return err
		}
	}
	return nil
}

// applyKubeadmConfig states the cluster's networks where every kubeadm cluster does, if it is one.
func (m member) applyKubeadmConfig(ctx context.Context) error {
	if m.cluster().Distribution != DistributionKubeadm {
		return nil
	}
	return m.applyManifest(ctx, "kubeadm-config.yaml", m.cluster())
}

// applyManifest fills in a template and applies it in the cluster.
func (m member) applyManifest(ctx context.Context, template string, data any) error {
	manifest, err := render(template, data)
	if err != nil {
		return err
	}
	api, err := m.applier(m.cluster().Name)
	if err != nil {
		return err
	}
	return api.Apply(ctx, manifest)
}

// applyFlannel gives flanneld its rights, where the cluster has it.
func (m member) applyFlannel(ctx context.Context) error {
	if m.cluster().CNI != CNIFlannel {
		return nil
	}
	return m.applyManifest(ctx, "flannel.yaml", flannelUser)
}

// applyDNS installs CoreDNS as the cluster's DNS, under the names that it has in
// every kubeadm cluster, and in those of k3s.
func (m member) applyDNS(ctx context.Context) error {
	return m.applyManifest(ctx, "coredns.yaml", struct {
		ClusterDNS netip.Addr
		Image      string
		Imports    bool
	}{m.cluster().dnsAddr(), imageCoreDNS, m.cluster().Distribution == DistributionK3s})
}

func (m member) dnsReady(ctx context.Context) error {
	config, err := m.RESTConfig(m.cluster().Name)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", m.cluster().Name, err)
	}
	return poll(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get coredns: %w", err)
		}
		if d.Status.ReadyReplicas == 0 {
			return fmt.Errorf("coredns: %d of %d pods ready", d.Status.ReadyReplicas, d.Status.Replicas)
		}
		return nil
	})
}
