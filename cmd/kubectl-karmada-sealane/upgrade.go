// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/installation"
	"github.com/sealane-io/sealane/internal/version"
)

// upgrade is a command line of upgrade.
type upgrade struct {
	*options
	host                        hostCluster
	mode, registry              string
	image, agentImage, dnsImage string
	ipsecImage                  string
	check, rollback             bool
	output                      string
	// bounded says that --timeout was given: without it, whatever makes progress may take its time.
	bounded bool
}

func newUpgrade(o *options) *cobra.Command {
	u := &upgrade{options: o}
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Bring an installation to the version of this command, or back", Args: cobra.NoArgs,
		Long: `Bring an installation to the version of this command: first the CRDs, then the controller, then the members'
workloads, of which Karmada brings all members the new ones, and the controller gives one member after the other its
turn with new node agents, the canary first. It says how far each member has come, and stops at the first that does
not come back, with the others on their old agents.

What is installed is kept in a ConfigMap on the Karmada API before the first change. --rollback puts it back, in the
reverse order: the members, then the controller; a controller that does not run goes first. The CRDs stay, as objects
that are stored may need them. An upgrade that is run again goes on where it was, and keeps what was kept.

Images come from where they come from now, with the tag of this version; --registry, or a flag of its own for each,
names others. All else of the installation stays as it is. A controller that runs as a process of your own is yours to
replace before you run this with --controller=external.

--check changes nothing: it prints which part has which version, and what would be done, in the order of the steps.
--timeout bounds all of it; without, each step may take its time as long as something moves.`,
		Example: `  ` + o.invocation + ` upgrade --check
  ` + o.invocation + ` upgrade
  ` + o.invocation + ` upgrade --rollback`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u.bounded = cmd.Flags().Changed("timeout")
			return u.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&u.check, "check", false, "say what would be done, and change nothing")
	f.BoolVar(&u.rollback, "rollback", false, "put back what was installed before the last upgrade")
	f.StringVarP(&u.output, "output", "o", outputTable, "output format of --check: table, wide, json or yaml")
	f.StringVar(&u.mode, "controller", controllerDeployment,
		"how the controller runs: deployment (on the cluster that hosts Karmada) or external (a process that you start)")
	f.StringVar(&u.registry, "registry", "",
		"registry, with a path if it has one, of the images controller, agent, dns and ipsec (default: where they come from "+
			"now)")
	f.StringVar(&u.image, "controller-image", "", "image of the controller")
	f.StringVar(&u.agentImage, "agent-image", "", "image of the members' agents")
	f.StringVar(&u.dnsImage, "dns-image", "", "image of the members' DNS")
	f.StringVar(&u.ipsecImage, "ipsec-image", "", "image for cables by ipsec, where that is installed")
	u.host.addFlags(f)
	cmd.MarkFlagsMutuallyExclusive("check", "rollback")
	return cmd
}

// deployed is what is installed now, and where.
type deployed struct {
	karmada *api
	// host has the controller's Deployment; nil if it runs elsewhere.
	host   *api
	fleet  *fleet
	target *controller
	// images now.
	controllerImage, agentImage, dnsImage string
	// ipsecImage is empty where there is none.
	ipsecImage string
	// annotation of the controller's pods by which they restart with another kubeconfig; empty if there is none.
	kubeconfigSum string
}

func (u *upgrade) run(ctx context.Context) error {
	if err := u.checkUsage(); err != nil {
		return err
	}
	if u.bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, u.timeout)
		defer cancel()
	}
	karmada, err := u.karmada()
	if err != nil {
		return err
	}
	if err := u.installed(ctx, karmada); err != nil {
		return err
	}
	d, err := u.read(ctx, karmada)
	if err != nil {
		return err
	}
	switch {
	case u.check:
		return u.report(ctx, d)
	case u.rollback:
		return u.goBack(ctx, d, newProgress(u.ErrOut))
	}
	return u.forward(ctx, d, newProgress(u.ErrOut))
}

func (u *upgrade) checkUsage() error {
	if err := checkOutput(u.output); err != nil {
		return err
	}
	c := controller{mode: u.mode}
	return c.checkMode()
}

// forward upgrades, step by step.
func (u *upgrade) forward(ctx context.Context, d *deployed, p *progress) error {
	if err := u.refused(ctx, d); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return d.karmada.checkRights(ctx, installRights()) },
		func(ctx context.Context) error { return u.keep(ctx, d, p) },
		func(ctx context.Context) error { return d.karmada.installCRDs(ctx, p) },
		func(ctx context.Context) error { return u.upgradeController(ctx, d, p) },
	} {
		if err := u.step(ctx, step); err != nil {
			return err
		}
	}
	r, err := u.rolling(ctx, d, func() error { return d.karmada.installBundle(ctx, d.target, p) })
	if err != nil {
		return err
	}
	if err := u.watch(ctx, d.karmada, r, p); err != nil {
		return err
	}
	if err := d.karmada.finishRecord(ctx); err != nil {
		return err
	}
	p.say("upgraded to %s; back again: %s upgrade --rollback", version.Version, u.invocation)
	return nil
}

// step does one that moves nothing step by step, within the time that it may take.
func (u *upgrade) step(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	return do(ctx)
}

// read finds out what is installed, and what it is to become.
func (u *upgrade) read(ctx context.Context, karmada *api) (*deployed, error) {
	d := &deployed{karmada: karmada, target: &controller{mode: u.mode, host: u.host, replicas: 2}}
	var err error
	within := scope{memberTimeout: defaultMemberTimeout}
	if d.fleet, err = u.gather(ctx, karmada, subjects{gateways: u.check}, within); err != nil {
		return nil, err
	}
	if err := u.readTemplates(ctx, d); err != nil {
		return nil, err
	}
	if u.mode == controllerDeployment {
		if err := u.readController(ctx, d); err != nil {
			return nil, err
		}
	}
	d.target.image = u.becomes("controller", u.image, d.controllerImage)
	d.target.agentImage = u.becomes("agent", u.agentImage, d.agentImage)
	d.target.dnsImage = u.becomes("dns", u.dnsImage, d.dnsImage)
	if d.ipsecImage != "" {
		d.target.ipsec, d.target.ipsecImage = true, u.becomes("ipsec", u.ipsecImage, d.ipsecImage)
	}
	return d, nil
}

// readTemplates reads what the members' workloads are now.
func (u *upgrade) readTemplates(ctx context.Context, d *deployed) error {
	var agents appsv1.DaemonSet
	var dns appsv1.Deployment
	for name, into := range map[string]client.Object{nodeAgentName: &agents, dnsName: &dns} {
		found, err := d.karmada.find(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: name}, into)
		if err != nil {
			return err
		}
		if !found {
			return &finding{expected: "the members' workloads as templates on the Karmada API",
				found: "none named " + v1alpha1.Namespace + "/" + name, remedy: "run " + u.invocation + " install"}
		}
	}
	spec := agents.Spec.Template.Spec
	d.agentImage, d.dnsImage = imageIn(spec), imageIn(dns.Spec.Template.Spec)
	for _, c := range spec.Containers {
		if c.Name == "ipsec" {
			d.ipsecImage = c.Image
		}
	}
	if len(spec.Containers) > 0 {
		d.target.imagePullPolicy = string(spec.Containers[0].ImagePullPolicy)
	}
	if len(spec.ImagePullSecrets) > 0 {
		d.target.imagePullSecret = spec.ImagePullSecrets[0].Name
	}
	return nil
}

// readController reads the controller's Deployment.
func (u *upgrade) readController(ctx context.Context, d *deployed) error {
	if err := d.target.complete(u.options); err != nil {
		return err
	}
	host, err := u.connect(d.target.host.kubeconfig, d.target.host.context)
	if err != nil {
		return err
	}
	var at appsv1.Deployment
	found, err := host.find(ctx, client.ObjectKey{Namespace: d.target.host.namespace, Name: controllerName}, &at)
	if err != nil {
		return host.unanswered("the cluster that hosts Karmada", "--host-context", err)
	}
	if !found {
		return &finding{
			expected: fmt.Sprintf("the controller as Deployment %s/%s (context %q)", d.target.host.namespace, controllerName,
				host.context),
			found: "there is none",
			remedy: "name the cluster that hosts Karmada with --host-context; a controller that is a process of your own " +
				"replace first, and then give --controller=external"}
	}
	d.host, d.controllerImage = host, imageIn(at.Spec.Template.Spec)
	d.kubeconfigSum = at.Spec.Template.Annotations[annotationKubeconfig]
	d.target.replicas = ptr.Deref(at.Spec.Replicas, 1)
	return nil
}

func imageIn(spec corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return ""
	}
	return spec.Containers[0].Image
}

// becomes is an image after the upgrade: the one stated, that of the registry stated, or the one there is with the tag
// of this version.
func (u *upgrade) becomes(name, stated, now string) string {
	if stated != "" || u.registry != "" {
		return (&controller{registry: u.registry}).imageOf(name, stated)
	}
	repository, _, _ := strings.Cut(now, "@")
	if tag := imageTag(repository); tag != "" {
		repository = strings.TrimSuffix(repository, ":"+tag)
	}
	return cmp.Or(repository, defaultRegistry+"/"+name) + ":" + version.Version
}

// upgradeController gives the controller the rights and the image of this version. Its credential stays as it is.
func (u *upgrade) upgradeController(ctx context.Context, d *deployed, p *progress) error {
	identity, err := manifests("artifacts/controller/karmada.yaml")
	if err != nil {
		return err
	}
	if err := d.karmada.apply(ctx, identity...); err != nil {
		return err
	}
	if d.host == nil {
		p.warn("controller: a process of your own, which has to be of %s by now", version.Version)
		return nil
	}
	objects, err := d.target.upgradedOnHost(d.kubeconfigSum)
	if err != nil {
		return err
	}
	return u.applyController(ctx, d, objects, p)
}

// applyController applies the objects of the controller on its host, and waits until it leads.
func (u *upgrade) applyController(ctx context.Context, d *deployed, objects []*unstructured.Unstructured,
	p *progress) error {
	if err := d.host.apply(ctx, objects...); err != nil {
		return err
	}
	if err := d.target.waitAvailable(ctx, d.host, p); err != nil {
		return err
	}
	began := time.Now().Add(-leaderLost / 2)
	err := until(ctx, func(ctx context.Context) (bool, error) {
		seen, err := d.karmada.leaderSeen(ctx)
		if err != nil {
			return false, err
		}
		if !seen.IsZero() && seen.Before(began) {
			p.state("controller", "waiting for one that leads")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return &finding{expected: "a controller that leads", found: err.Error(),
			remedy: "see its log; back again: " + u.invocation + " upgrade --rollback"}
	}
	p.state("controller", "runs and leads")
	return nil
}

// templatesOf are the members' workloads of this version: what a roll-back may put back. CRDs are not among them.
func (c *controller) templatesOf() ([]*unstructured.Unstructured, error) {
	all, err := c.bundle()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == installation.KindCRD
	}), nil
}
