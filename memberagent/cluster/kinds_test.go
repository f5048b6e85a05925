// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	sealane "github.com/sealane-io/sealane"
	"github.com/sealane-io/sealane/api/v1alpha1"
)

// asked notes the resources that are listed.
type asked struct {
	client.Reader
	scheme    *runtime.Scheme
	resources []string
}

func (a *asked) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, a.scheme)
	a.resources = append(a.resources, strings.ToLower(strings.TrimSuffix(kind.Kind, "List"))+"s")
	return err
}

// TestEachOwnKindIsAwaited: the caches of a kind that comes later would look for it again only after ten seconds, and
// after two minutes give up.
func TestEachOwnKindIsAwaited(t *testing.T) {
	scheme, err := baseScheme()
	if err != nil {
		t.Fatal(err)
	}
	reader := &asked{scheme: scheme}
	if err := awaitOwnKinds(t.Context(), reader); err != nil {
		t.Fatal(err)
	}
	text, err := sealane.Artifacts.ReadFile("artifacts/deploy/cluster-agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var watched []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			if slices.Contains(r.APIGroups, v1alpha1.GroupName) && slices.Contains(r.Verbs, "watch") {
				watched = append(watched, r.Resources...)
			}
		}
	}
	slices.Sort(watched)
	slices.Sort(reader.resources)
	if !slices.Equal(reader.resources, watched) || len(watched) == 0 {
		t.Errorf("awaited are %v, and watched %v", reader.resources, watched)
	}
}
