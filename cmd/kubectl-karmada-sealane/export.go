// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/karmada-io/karmada/pkg/util/names"

	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// exportedBy is the managed-by label of what export made, and of what unexport therefore removes.
const exportedBy = fieldManager

// export is the target of export and unexport.
type export struct {
	*options
	service   string
	namespace string
	clusters  []string
	member    string
	terms     terms
	// wait until what was asked for has happened.
	wait bool
	// allowMissing exports a Service that does not exist yet; createNamespace creates its namespace.
	allowMissing    bool
	createNamespace bool
	dryRun          bool
	output          string
}

func newExport(o *options) *cobra.Command {
	e := &export{options: o}
	cmd := &cobra.Command{
		Use:   "export SERVICE",
		Short: "Export a service to the other members",
		Long: `Export a service: create a ServiceExport on the Karmada API and a PropagationPolicy that spreads it to the
clusters of -C, by default to those that Karmada propagates the Service to, or else to those that the ClusterSet
selects, now. With --context, create a ServiceExport in that member alone. Then wait until each of these clusters, or
without -C each that has the Service, exports it; the exit code is not 0 if one does not. Clusters that Karmada does
not reach are not waited for.

The namespace must exist where the ServiceExport is created, and the Service there or in a cluster that is to
export it: --create-namespace and --allow-missing say otherwise.

Every member imports the service, or else those that --import-clusters names or --import-selector selects, and
the exporting clusters themselves. What the flags set are annotations of the ServiceExport; without them, those
of one that exists stay. Which of several exporting clusters serves is said by a ServicePolicy, written with
kubectl on the Karmada API.`,
		Example: `  ` + o.invocation + ` export whereami -n sample -C c2
  ` + o.invocation + ` export whereami -n sample --context c2
  ` + o.invocation + ` export whereami -n sample -C c2 --create-namespace
  ` + o.invocation + ` export whereami -n sample -C c1,c2 --mode ClusterIP --import-selector env=prod
  ` + o.invocation + ` export whereami -n sample -C c2 --dry-run -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.service = args[0]
			return e.run(cmd.Context())
		},
	}
	e.addFlags(cmd)
	f := cmd.Flags()
	f.StringSliceVarP(&e.clusters, "clusters", "C", nil, "clusters that export it")
	f.StringVar(&e.terms.mode, flagMode, "",
		"what the name answers: ClusterSetIP or ClusterIP (default: as the ClusterSet says)")
	f.StringSliceVar(&e.terms.importers, flagImporters, nil,
		"clusters that import it; \"\" for the exporting ones only (default: every member)")
	f.StringVar(&e.terms.selector, flagSelector, "",
		"labels of Karmada's clusters that import it, as kubectl's -l takes them")
	e.terms.given = f.Changed
	f.BoolVar(&e.allowMissing, "allow-missing", false, "export a Service that does not exist yet: the export waits for it")
	f.BoolVar(&e.createNamespace, "create-namespace", false, "create the namespace if it does not exist")
	f.BoolVar(&e.dryRun, "dry-run", false, "print what would be created, and create nothing")
	f.StringVarP(&e.output, "output", "o", outputYAML, "output format of --dry-run: yaml or json")
	cmd.MarkFlagsMutuallyExclusive("clusters", "context")
	return cmd
}

func (e *export) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&e.namespace, "namespace", "n", "", "namespace of the service (default: that of the kubeconfig context)")
	f.StringVar(&e.member, "context", "", "kubeconfig context of a member, to act there instead of on the Karmada API")
	f.BoolVar(&e.wait, "wait", true, "wait until it has happened")
}

// target opens the API server to act on and fills in the namespace.
func (e *export) target() (*api, error) {
	contextName := e.member
	if contextName == "" {
		contextName = e.karmadaContext
	}
	if e.namespace == "" {
		namespace, _, err := e.config("", contextName).Namespace()
		if err != nil {
			return nil, fmt.Errorf("namespace of the kubeconfig context: %w", err)
		}
		e.namespace = namespace
	}
	return e.connect("", contextName)
}

func (e *export) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	if err := checkServiceName(e.service); err != nil {
		return err
	}
	if e.output != outputYAML && e.output != outputJSON {
		return &finding{expected: "-o to be yaml or json", found: fmt.Sprintf("%q", e.output), remedy: "choose one of them"}
	}
	annotations, err := e.terms.annotations()
	if err != nil {
		return err
	}
	target, err := e.target()
	if err != nil {
		return err
	}
	if err := e.check(ctx, target); err != nil {
		return err
	}
	objects, err := e.objects(ctx, target, annotations)
	if err != nil {
		return err
	}
	if e.dryRun {
		return e.print(objects)
	}
	if e.member != "" {
		if err := e.waitDeleted(ctx, target, objects[0].DeepCopyObject().(client.Object)); err != nil {
			return err
		}
	}
	if err := e.ensureNamespace(ctx, target); err != nil {
		return err
	}
	for _, object := range objects {
		if err := e.create(ctx, target, object); err != nil {
			return err
		}
	}
	verb, err := e.await(ctx, target)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.Out, e.told(verb, objects[0].GetAnnotations()))
	return nil
}

// objects are the ServiceExport and, on the Karmada API, its PropagationPolicy.
func (e *export) objects(ctx context.Context, target *api, annotations map[string]string) ([]client.Object, error) {
	serviceExport, err := e.serviceExport(target)
	if err != nil {
		return nil, err
	}
	serviceExport.SetAnnotations(annotations)
	if e.member != "" {
		return []client.Object{serviceExport}, nil
	}
	affinity, err := e.placement(ctx, target)
	if err != nil {
		return nil, err
	}
	return []client.Object{serviceExport, e.policy(affinity)}, nil
}

// serviceExport is of the version that the API server prefers: Karmada serves v1alpha1 only.
func (e *export) serviceExport(target *api) (*unstructured.Unstructured, error) {
	mapping, err := target.RESTMapper().RESTMapping(schema.GroupKind{Group: mcsv1alpha1.GroupName, Kind: "ServiceExport"})
	if meta.IsNoMatchError(err) {
		return nil, &finding{
			expected: fmt.Sprintf("ServiceExport (%s) to be served at %s", mcsv1alpha1.GroupName, target.config.Host),
			found:    "no such kind there",
			remedy:   "on the Karmada API, install Karmada's own CRDs; in a member, join it first: Sealane installs the kind",
		}
	}
	if err != nil && e.member != "" {
		return nil, target.unanswered("the member", "--context", err)
	}
	if err != nil {
		return nil, target.unanswered("the Karmada API", "--karmada-context", err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(mapping.GroupVersionKind)
	u.SetNamespace(e.namespace)
	u.SetName(e.service)
	u.SetLabels(map[string]string{labelManagedBy: exportedBy})
	return u, nil
}

// placement selects the clusters of -C, else those that have the Service from Karmada, else those of the ClusterSet.
func (e *export) placement(ctx context.Context, karmada *api) (*policyv1alpha1.ClusterAffinity, error) {
	if len(e.clusters) > 0 {
		return &policyv1alpha1.ClusterAffinity{ClusterNames: e.clusters}, nil
	}
	var binding workv1alpha2.ResourceBinding
	key := client.ObjectKey{Namespace: e.namespace, Name: names.GenerateBindingName("Service", e.service)}
	err := karmada.Get(ctx, key, &binding)
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("get resourcebinding %s: %w", key, err)
	}
	if err == nil && len(binding.Spec.Clusters) > 0 {
		a := &policyv1alpha1.ClusterAffinity{}
		for _, c := range binding.Spec.Clusters {
			a.ClusterNames = append(a.ClusterNames, c.Name)
		}
		return a, nil
	}
	return karmada.ofClusterSets(ctx)
}

// ofClusterSets selects as the ClusterSet does, or, where there are several, the members that they have now.
func (a *api) ofClusterSets(ctx context.Context) (*policyv1alpha1.ClusterAffinity, error) {
	sets, err := a.clusterSets(ctx)
	if err != nil {
		return nil, err
	}
	if len(sets) == 1 {
		return sets[0].Spec.ClusterAffinity.DeepCopy(), nil
	}
	var members v1alpha1.MemberList
	if err := a.List(ctx, &members); err != nil && !gone(err) {
		return nil, fmt.Errorf("list members: %w", err)
	}
	if len(members.Items) == 0 {
		return nil, &finding{
			expected: "a ClusterSet with members to export from", found: fmt.Sprintf("%d ClusterSets without any", len(sets)),
			remedy: "create a ClusterSet, or name the clusters with -C",
		}
	}
	affinity := &policyv1alpha1.ClusterAffinity{}
	for i := range members.Items {
		affinity.ClusterNames = append(affinity.ClusterNames, members.Items[i].Name)
	}
	return affinity, nil
}

func (e *export) policy(affinity *policyv1alpha1.ClusterAffinity) *policyv1alpha1.PropagationPolicy {
	return &policyv1alpha1.PropagationPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: policyv1alpha1.SchemeGroupVersion.String(), Kind: "PropagationPolicy"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.namespace, Name: policyName(e.service),
			Labels: map[string]string{labelManagedBy: exportedBy},
		},
		Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{
				APIVersion: mcsv1alpha1.GroupVersion.String(), Kind: "ServiceExport", Namespace: e.namespace, Name: e.service,
			}},
			Placement: policyv1alpha1.Placement{ClusterAffinity: affinity},
		},
	}
}

// policyName stays within the 63 characters that Karmada allows.
func policyName(service string) string {
	name := "sealane-export-" + service
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(service))
	return name[:validation.LabelValueMaxLength-9] + "-" + hex.EncodeToString(sum[:4])
}

// create makes an object. One that export made before gets the annotations and the placement given.
func (e *export) create(ctx context.Context, target *api, object client.Object) error {
	what := describe(object)
	err := target.Create(ctx, object.DeepCopyObject().(client.Object), client.FieldOwner(fieldManager))
	if err == nil {
		fmt.Fprintf(e.Out, "%s created\n", what)
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s: %w", what, err)
	}
	if policy, ok := object.(*policyv1alpha1.PropagationPolicy); ok {
		return e.updatePolicy(ctx, target, policy)
	}
	return e.annotate(ctx, target, object.(*unstructured.Unstructured))
}

// annotate gives a ServiceExport that exists the annotations of want, and want all that it has then. One
// that somebody else made is theirs.
func (e *export) annotate(ctx context.Context, target *api, want *unstructured.Unstructured) error {
	existing := want.DeepCopy()
	if err := target.Get(ctx, client.ObjectKeyFromObject(want), existing); err != nil {
		return fmt.Errorf("get %s: %w", describe(want), err)
	}
	if err := e.ownOfMember(existing, fmt.Sprintf("change it there: %s export %s -n %s -C CLUSTERS; "+
		"or, for this cluster to export it on its own, take that back first: %s unexport %s -n %s",
		e.invocation, e.service, e.namespace, e.invocation, e.service, e.namespace)); err != nil {
		return err
	}
	base := existing.DeepCopy()
	merged := existing.GetAnnotations()
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, want.GetAnnotations())
	want.SetAnnotations(merged)
	if maps.Equal(merged, base.GetAnnotations()) {
		fmt.Fprintf(e.Out, "%s exists already\n", describe(want))
		return nil
	}
	if existing.GetLabels()[labelManagedBy] != exportedBy {
		return &finding{
			expected: describe(want) + " to be of this command's making",
			found:    "it lacks the label " + labelManagedBy + "=" + exportedBy + ": somebody else made it",
			remedy:   "annotate it yourself, or where it comes from",
		}
	}
	existing.SetAnnotations(merged)
	if err := target.Patch(ctx, existing, client.MergeFrom(base), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("update %s: %w", describe(want), err)
	}
	fmt.Fprintf(e.Out, "%s exists already, annotated as given\n", describe(want))
	return nil
}

func (e *export) updatePolicy(ctx context.Context, target *api, policy *policyv1alpha1.PropagationPolicy) error {
	var existing policyv1alpha1.PropagationPolicy
	if err := target.Get(ctx, client.ObjectKeyFromObject(policy), &existing); err != nil {
		return fmt.Errorf("get %s: %w", describe(policy), err)
	}
	if existing.Labels[labelManagedBy] != exportedBy {
		return &finding{
			expected: describe(policy) + " to be of this command's making",
			found:    "a policy of that name without the label " + labelManagedBy + "=" + exportedBy,
			remedy:   "rename or delete that policy, or spread the ServiceExport with it",
		}
	}
	base := existing.DeepCopy()
	existing.Spec.Placement.ClusterAffinity = policy.Spec.Placement.ClusterAffinity
	if err := target.Patch(ctx, &existing, client.MergeFrom(base), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("update %s: %w", describe(policy), err)
	}
	fmt.Fprintf(e.Out, "%s exists already, placement as given\n", describe(policy))
	return nil
}

func (e *export) print(objects []client.Object) error {
	var documents []string
	for _, object := range objects {
		content, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("write %s: %w", describe(object), err)
		}
		if e.output == outputJSON {
			if content, err = yaml.YAMLToJSON(content); err != nil {
				return fmt.Errorf("write %s: %w", describe(object), err)
			}
		}
		documents = append(documents, string(content))
	}
	separator := "---\n"
	if e.output == outputJSON {
		separator = "\n"
	}
	_, err := fmt.Fprint(e.Out, strings.Join(documents, separator))
	return err
}
