// SPDX-License-Identifier: Apache-2.0

// Package mcscrds sees to it that the cluster serves the MCS API. A kind that is missing is created from
// sigs.k8s.io/mcs-api v0.5.2; one that Sealane created earlier is brought up to date; one that anybody else
// installed is used as it is. Nothing is ever deleted: a CustomResourceDefinition takes the users'
// ServiceExports with it.
package mcscrds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/mcs-api/config/crd"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// labelManagedBy on a CustomResourceDefinition says that Sealane created it and may update it.
const labelManagedBy = "app.kubernetes.io/managed-by"

// The versions of the MCS API, best first.
const (
	V1Beta1  = "v1beta1"
	V1Alpha1 = "v1alpha1"
)

// Names of the two CustomResourceDefinitions.
const (
	serviceExports = mcs.ServiceExportFullName
	serviceImports = mcs.ServiceImportFullName
)

// errNotServed is transient: the API server has not established the kinds yet, or is removing them.
var errNotServed = errors.New("the cluster serves no version of ServiceExport and ServiceImport that is known here")

// action is what to do with one CustomResourceDefinition.
type action int

const (
	leave action = iota
	create
	update
)

// decide compares the CustomResourceDefinition that this release brings with the one in the cluster, which
// is nil when there is none.
func decide(want, have *apiextensionsv1.CustomResourceDefinition) action {
	switch {
	case have == nil:
		return create
	case have.Labels[labelManagedBy] != v1alpha1.ManagedBy:
		return leave
	case newer(want, have):
		return update
	default:
		return leave
	}
}

// newer compares release version and schema revision as mcs-api labels them. Labels that do not parse are
// older than any that does.
func newer(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	parse := func(c *apiextensionsv1.CustomResourceDefinition) *version.Version {
		v, err := version.ParseSemantic(c.Labels[crd.ReleaseVersionLabel])
		if err != nil {
			return version.MustParseSemantic("v0.0.0")
		}
		return v
	}
	va, vb := parse(a), parse(b)
	if !va.EqualTo(vb) {
		return vb.LessThan(va)
	}
	const revision = crd.CustomResourceDefinitionSchemaRevisionLabel
	return a.Labels[revision] > b.Labels[revision]
}

// wanted parses the definitions that mcs-api ships.
func wanted() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, text := range [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD} {
		c := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, c); err != nil {
			return nil, fmt.Errorf("parse the definitions of mcs-api: %w", err)
		}
		c.Labels[labelManagedBy] = v1alpha1.ManagedBy
		out = append(out, c)
	}
	return out, nil
}

// Ensure creates what is missing and updates what is ours.
func Ensure(ctx context.Context, c client.Client) error {
	want, err := wanted()
	if err != nil {
		return err
	}
	for _, w := range want {
		if err := ensureOne(ctx, c, w); err != nil {
			return fmt.Errorf("ensure %s: %w", w.Name, err)
		}
	}
	return nil
}

func ensureOne(ctx context.Context, c client.Client, want *apiextensionsv1.CustomResourceDefinition) error {
	have := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(want), have); apierrors.IsNotFound(err) {
		have = nil
	} else if err != nil {
		return err
	}
	switch decide(want, have) {
	case create:
		log.FromContext(ctx).Info("creating a kind of the MCS API", "crd", want.Name)
		if err := c.Create(ctx, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	case update:
		log.FromContext(ctx).Info("updating a kind of the MCS API", "crd", want.Name)
		want.ResourceVersion = have.ResourceVersion
		return c.Update(ctx, want)
	case leave:
	}
	return nil
}

// Version returns the best version that the cluster serves of both kinds.
func Version(ctx context.Context, c client.Reader) (string, error) {
	var both []string
	for _, name := range []string{serviceExports, serviceImports} {
		have := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, have); apierrors.IsNotFound(err) {
			return "", errNotServed
		} else if err != nil {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		served := servedVersions(have)
		if name == serviceExports {
			both = served
			continue
		}
		both = slices.DeleteFunc(both, func(v string) bool { return !slices.Contains(served, v) })
	}
	for _, v := range []string{V1Beta1, V1Alpha1} {
		if slices.Contains(both, v) {
			return v, nil
		}
	}
	return "", errNotServed
}

// servedVersions lists nothing while the definition is not established.
func servedVersions(c *apiextensionsv1.CustomResourceDefinition) []string {
	established := slices.ContainsFunc(c.Status.Conditions,
		func(x apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return x.Type == apiextensionsv1.Established && x.Status == apiextensionsv1.ConditionTrue
		})
	if !established || c.DeletionTimestamp != nil {
		return nil
	}
	var out []string
	for _, v := range c.Spec.Versions {
		if v.Served {
			out = append(out, v.Name)
		}
	}
	return out
}

// Await ensures the kinds until the cluster serves them, and returns the version to use.
func Await(ctx context.Context, c client.Client) (string, error) {
	var served string
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if err := Ensure(ctx, c); err != nil {
			log.FromContext(ctx).Error(err, "cannot install the MCS API; trying again")
			return false, nil
		}
		v, err := Version(ctx, c)
		if err != nil {
			log.FromContext(ctx).V(1).Info("waiting for the MCS API", "reason", err.Error())
			return false, nil
		}
		served = v
		return true, nil
	})
	return served, err
}

// AddToScheme registers the Go types of v1beta1 under the served version. v1alpha1 differs only by fields
// that it lacks, so one set of types serves both.
func AddToScheme(s *runtime.Scheme, served string) {
	gv := schema.GroupVersion{Group: mcs.GroupName, Version: served}
	s.AddKnownTypes(gv, &mcs.ServiceExport{}, &mcs.ServiceExportList{}, &mcs.ServiceImport{}, &mcs.ServiceImportList{})
	metav1.AddToGroupVersion(s, gv)
}
