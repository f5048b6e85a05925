// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// problems waits until the Bundle reports these problems with imports, as "<namespace> <reason> <names>".
func (m *member) problems(what string, check func([]v1alpha1.ImportProblem) error) {
	m.t.Helper()
	m.eventually(what, func(ctx context.Context) error {
		b := bundle(0)
		if err := m.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		return errors.Join(expect("revision", b.Status.ObservedRevision, b.Spec.Revision), check(b.Status.Imports))
	})
}

func oneProblem(namespace, reason, name string) func([]v1alpha1.ImportProblem) error {
	return func(all []v1alpha1.ImportProblem) error {
		if len(all) != 1 || len(all[0].Names) != 1 || all[0].Message == "" {
			return errors.New("not one problem with a message")
		}
		return errors.Join(expect("namespace", all[0].Namespace, namespace), expect("reason", all[0].Reason, reason),
			expect("name", all[0].Names[0], name))
	}
}

func none(all []v1alpha1.ImportProblem) error { return expect("problems", len(all), 0) }

// TestAnImportThatCannotBeMade: what the API server refuses is said on the ServiceImport, the Peering and the Bundle,
// and is made once it can be.
func TestAnImportThatCannotBeMade(t *testing.T) {
	m := newMember(t)
	m.start(m.config)
	m.namespace("sample")
	m.peering(1)
	web := key("sample", "web")
	unready := func(reason, words string) {
		t.Helper()
		m.imported(web, func(i *mcs.ServiceImport) error {
			ready := meta.FindStatusCondition(i.Status.Conditions, "Ready")
			if ready == nil {
				return errors.New("no condition")
			}
			return errors.Join(expect("status", ready.Status, metav1.ConditionFalse), expect("reason", ready.Reason, reason),
				contains(ready.Message, words), expect("ips", len(i.Spec.IPs), 0))
		})
		m.peeringCondition("ImportsApplied", metav1.ConditionFalse, reason, words)
		m.problems(reason, oneProblem("sample", reason, "web"))
	}
	usable := func() {
		t.Helper()
		m.imported(web, func(i *mcs.ServiceImport) error {
			return errors.Join(expect("ready", meta.IsStatusConditionTrue(i.Status.Conditions, "Ready"), true),
				expect("ips", len(i.Spec.IPs), 1))
		})
		m.peeringCondition("ImportsApplied", metav1.ConditionTrue, "Applied", "")
		m.problems("nothing", none)
	}

	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "sample", Name: "small"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}
	m.create(quota)
	// Nobody else here counts what is used.
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard,
		Used: corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}}
	if err := m.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	m.run("by a ResourceQuota", func(t *testing.T) {
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		unready("Refused", "exceeded quota: small")
		m.delete(quota.DeepCopy())
		poke(m, web)
		usable()
	})
	m.run("by an admission policy", func(t *testing.T) {
		m.namespace("guarded")
		open := m.guard("guarded", "derived Services need a ticket")
		m.imports(imported("guarded", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		web := key("guarded", "web")
		m.imported(web, func(i *mcs.ServiceImport) error {
			ready := meta.FindStatusCondition(i.Status.Conditions, "Ready")
			if ready == nil {
				return errors.New("no condition")
			}
			return errors.Join(expect("status", ready.Status, metav1.ConditionFalse), expect("reason", ready.Reason, "Refused"),
				contains(ready.Message, "derived Services need a ticket"), expect("ips", len(i.Spec.IPs), 0))
		})
		m.peeringCondition("ImportsApplied", metav1.ConditionFalse, "Refused", "derived Services need a ticket")
		m.problems("Refused", oneProblem("guarded", "Refused", "web"))
		open()
		poke(m, web)
		m.imported(web, func(i *mcs.ServiceImport) error {
			return errors.Join(expect("ready", meta.IsStatusConditionTrue(i.Status.Conditions, "Ready"), true),
				expect("ips", len(i.Spec.IPs), 1))
		})
		m.problems("nothing", none)
	})
	m.run("for want of a namespace", func(t *testing.T) {
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}), imported("absent", "web",
			map[string][]string{"c2": {"10.9.0.5"}}))
		m.problems("NamespaceMissing", oneProblem("absent", "NamespaceMissing", "web"))
		m.imports(imported("sample", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		usable()
	})
	m.run("for a name that is taken", func(t *testing.T) {
		m.namespace("other")
		other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other",
			Name: v1alpha1.DerivedName("other", "web")}}
		other.Spec.Ports = []corev1.ServicePort{{Port: 1}}
		m.create(other)
		m.imports(imported("other", "web", map[string][]string{"c2": {"10.9.0.4"}}))
		web = key("other", "web")
		m.imported(web, func(i *mcs.ServiceImport) error {
			ready := meta.FindStatusCondition(i.Status.Conditions, "Ready")
			return errors.Join(expect("not ready", ready != nil && ready.Status == metav1.ConditionFalse &&
				ready.Reason == "NameTaken", true),
				expect("ips", len(i.Spec.IPs), 0))
		})
		m.problems("NameTaken", oneProblem("other", "NameTaken", "web"))
		m.delete(other)
		poke(m, web)
		usable()
	})
}

// poke makes the agent look at an import again, which without an event it does every 15 seconds.
func poke(m *member, service client.ObjectKey) {
	m.t.Helper()
	change(m, &mcs.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}},
		func(i *mcs.ServiceImport) {
			i.Annotations = map[string]string{"poke": "it"}
		})
}

// guard has the API server refuse derived Services in a namespace, with a message, until the function is called that it
// returns.
func (m *member) guard(namespace, message string) (open func()) {
	m.t.Helper()
	var services admissionregistrationv1.NamedRuleWithOperations
	services.RuleWithOperations = admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
			Resources: []string{"services"}},
	}
	policy := new(admissionregistrationv1.ValidatingAdmissionPolicy)
	policy.Name = "no-derived-services"
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{services},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: `!object.metadata.name.startsWith("sl-")`,
		Message: message}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	m.create(policy)
	m.create(binding)
	refused := func(ctx context.Context) bool {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sl-try"}}
		s.Spec.Ports = []corev1.ServicePort{{Port: 1}}
		return m.Create(ctx, s, client.DryRunAll) != nil
	}
	m.eventually("the policy is enforced", func(ctx context.Context) error {
		return expect("refused",
			refused(ctx), true)
	})
	return func() {
		m.t.Helper()
		m.delete(binding)
		m.delete(policy)
		m.eventually("the policy is gone", func(ctx context.Context) error { return expect("refused", refused(ctx), false) })
	}
}
