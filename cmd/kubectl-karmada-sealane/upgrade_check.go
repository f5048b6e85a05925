// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
	"github.com/sealane-io/sealane/internal/version"
)

// upgradeRow is a part of the installation, and what an upgrade makes of it.
type upgradeRow struct {
	// Step is when, from 1 on.
	Step      int    `json:"step"`
	Component string `json:"component"`
	Cluster   string `json:"cluster,omitempty"`
	Now       string `json:"now"`
	Target    string `json:"target"`
	// State is "current", "upgrade", "newer" or "unknown".
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// States of a part before an upgrade.
const (
	partCurrent = "current"
	partUpgrade = "upgrade"
	partNewer   = "newer"
	partUnknown = "unknown"
)

func (r upgradeRow) cells() []string {
	return []string{number(int32(r.Step)), r.Component, r.Cluster, r.Now, r.Target, r.State, r.Message}
}

// report prints what would be done. It fails where the upgrade would refuse to begin.
func (u *upgrade) report(ctx context.Context, d *deployed) error {
	rows, err := u.rows(ctx, d)
	if err != nil {
		return err
	}
	t := newTable("upgrade", rows, 7, "STEP", "COMPONENT", "CLUSTER", "NOW", "TARGET", "STATE", "MESSAGE")
	if err := write(u.Out, u.output, t); err != nil {
		return err
	}
	return u.refused(ctx, d)
}

func (u *upgrade) rows(ctx context.Context, d *deployed) ([]upgradeRow, error) {
	own, err := crds()
	if err != nil {
		return nil, err
	}
	identity, err := manifests("artifacts/controller/karmada.yaml")
	if err != nil {
		return nil, err
	}
	templates, err := d.target.templatesOf()
	if err != nil {
		return nil, err
	}
	var rows []upgradeRow
	for _, part := range []struct {
		step    int
		name    string
		objects []*unstructured.Unstructured
	}{{1, "CRDs", own}, {2, "controller's rights", identity}, {3, "members' templates", templates}} {
		row, err := d.karmada.compared(ctx, part.objects)
		if err != nil {
			return nil, err
		}
		row.Step, row.Component = part.step, part.name
		rows = append(rows, row)
	}
	images := []upgradeRow{image(3, "agents", d.agentImage, d.target.agentImage),
		image(3, "DNS", d.dnsImage, d.target.dnsImage)}
	if d.ipsecImage != "" {
		images = append(images, image(3, "ipsec", d.ipsecImage, d.target.ipsecImage))
	}
	if d.host != nil {
		images = append([]upgradeRow{image(2, "controller", d.controllerImage, d.target.image)}, images...)
	} else {
		rows = append(rows, upgradeRow{2, "controller", "", "", version.Version, partUnknown,
			"a process of your own, to be replaced before"})
	}
	rows = append(append(rows, images...), memberVersions(d.fleet)...)
	slices.SortStableFunc(rows, func(a, b upgradeRow) int { return a.Step - b.Step })
	return rows, nil
}

func image(step int, name, now, target string) upgradeRow {
	row := upgradeRow{step, name, "", now, target, partUpgrade, ""}
	if now == target {
		row.State = partCurrent
	}
	return row
}

// memberVersions are those that agents say they are of, in the order in which members have their turns.
func memberVersions(f *fleet) []upgradeRow {
	var rows []upgradeRow
	for i := range f.members {
		m := &f.members[i]
		row := upgradeRow{4, "cluster agent", m.Name, m.Status.AgentVersion, version.Version,
			versionState(m.Status.AgentVersion), ""}
		if r := m.Status.RollOut; r != nil && r.State != v1alpha1.RollOutDone {
			row.Message = "a roll-out goes on already, " + strings.ToLower(string(r.State)) + ": " + clip.Text(r.Message, 120)
		}
		if s := memberReadiness(&m.Member); !s.ready {
			row.Message = "not ready: " + s.text
		}
		rows = append(rows, row)
		if m.err != nil {
			rows = append(rows, upgradeRow{4, "gateways", m.Name, "", version.Version, partUnknown, m.unavailable()})
		}
		for j := range m.gateways {
			g := &m.gateways[j]
			rows = append(rows, upgradeRow{4, "gateway " + g.Name, m.Name, g.Status.Version, version.Version,
				versionState(g.Status.Version), ""})
		}
	}
	first := map[string]bool{}
	for i := range f.clusterSets {
		first[f.clusterSets[i].Spec.RollOut.Canary] = true
	}
	slices.SortStableFunc(rows, func(a, b upgradeRow) int {
		if first[a.Cluster] != first[b.Cluster] {
			if first[a.Cluster] {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Cluster, b.Cluster)
	})
	return rows
}

// versionState compares a version with this command's.
func versionState(now string) string {
	switch {
	case now == "":
		return partUnknown
	case now == version.Version:
		return partCurrent
	case newer(now, version.Version):
		return partNewer
	}
	return partUpgrade
}

// newer compares releases: what is after the patch number says nothing of the order of builds.
func newer(a, b string) bool {
	x, err := utilversion.ParseSemantic(a)
	if err != nil {
		return false
	}
	y, err := utilversion.ParseSemantic(b)
	if err != nil {
		return false
	}
	for _, pair := range [][2]uint{{x.Major(), y.Major()}, {x.Minor(), y.Minor()}, {x.Patch(), y.Patch()}} {
		if pair[0] != pair[1] {
			return pair[0] > pair[1]
		}
	}
	return false
}

// refused returns why an upgrade cannot begin.
func (u *upgrade) refused(ctx context.Context, d *deployed) error {
	var ahead []string
	if tag := imageTag(d.controllerImage); newer(tag, version.Version) {
		ahead = append(ahead, "the controller is "+tag)
	}
	for i := range d.fleet.members {
		if m := &d.fleet.members[i]; newer(m.Status.AgentVersion, version.Version) {
			ahead = append(ahead, "the cluster agent of "+m.Name+" is "+clip.Quote(m.Status.AgentVersion))
		}
	}
	if len(ahead) > 0 {
		return &finding{expected: "an installation that is no newer than this command, " + version.Version,
			found:  clip.List(ahead, 5),
			remedy: "use the plugin of that version or later; back from it: its upgrade --rollback"}
	}
	own, err := crds()
	if err != nil {
		return err
	}
	lost, err := d.karmada.lostVersions(ctx, own)
	if err != nil || len(lost) == 0 {
		return err
	}
	return &finding{expected: "CRDs of this command that have every version in which objects are stored",
		found: clip.List(lost, 5), remedy: "use the plugin of a later version; objects stored so would be lost"}
}

// lostVersions are those in which objects are stored and which CRDs to be applied do not have.
func (a *api) lostVersions(ctx context.Context, own []*unstructured.Unstructured) ([]string, error) {
	var lost []string
	for _, o := range own {
		var live apiextensionsv1.CustomResourceDefinition
		found, err := a.find(ctx, client.ObjectKeyFromObject(o), &live)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", describe(o), err)
		}
		for _, stored := range live.Status.StoredVersions {
			if !slices.ContainsFunc(versions, func(v any) bool {
				fields, ok := v.(map[string]any)
				return ok && fields["name"] == stored
			}) {
				lost = append(lost, live.Name+" "+stored)
			}
		}
	}
	return lost, nil
}

// compared says how many objects an apply would change, by asking the API server to try.
func (a *api) compared(ctx context.Context, objects []*unstructured.Unstructured) (upgradeRow, error) {
	same, missing := 0, 0
	for _, o := range objects {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		err := a.Get(ctx, client.ObjectKeyFromObject(o), live)
		if gone(err) {
			missing++
			continue
		}
		if err != nil {
			return upgradeRow{}, fmt.Errorf("get %s: %w", describe(o), err)
		}
		text, err := json.Marshal(o.Object)
		if err != nil {
			return upgradeRow{}, fmt.Errorf("encode %s: %w", describe(o), err)
		}
		tried := o.DeepCopy()
		err = a.Patch(ctx, tried, client.RawPatch(types.ApplyPatchType, text), client.DryRunAll, client.ForceOwnership,
			client.FieldOwner(fieldManager))
		if err != nil {
			return upgradeRow{}, fmt.Errorf("try to apply %s: %w", describe(o), err)
		}
		if reflect.DeepEqual(content(live), content(tried)) {
			same++
		}
	}
	row := upgradeRow{Now: fmt.Sprintf("%d of %d as in this version", same, len(objects)), Target: version.Version,
		State: partUpgrade}
	switch {
	case same == len(objects):
		row.State = partCurrent
	case missing > 0:
		row.Message = fmt.Sprintf("%d are new", missing)
	}
	return row, nil
}

// content is what an object says: all but its status, and of its metadata the labels and annotations alone.
func content(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{"labels": o.GetLabels(), "annotations": o.GetAnnotations()}
	for key, value := range o.Object {
		if key != "status" && key != "metadata" {
			out[key] = value
		}
	}
	return out
}
