// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

const (
	// recordName is the ConfigMap on the Karmada API that keeps what was installed before an upgrade.
	recordName = "sealane-before-upgrade"
	// recordObjects is its key of the objects: JSON, compressed. recordFinished says that the upgrade came to its end:
	// the next one keeps anew.
	recordObjects, recordFinished = "objects.json.gz", "finished"
	// maxRecord bounds, in bytes, what is read of one.
	maxRecord = 16 << 20
)

// record is what an upgrade has to put back.
type record struct {
	// Templates of the members' workloads, Identity of the controller on the Karmada API, Host has the rest of it.
	Templates []map[string]any `json:"templates"`
	Identity  []map[string]any `json:"identity"`
	Host      []map[string]any `json:"host,omitempty"`
	TakenAt   time.Time        `json:"takenAt"`
	// Controller and Agent are the images of then, for people.
	Controller string `json:"controller,omitempty"`
	Agent      string `json:"agent"`
}

// keep writes the record, unless an upgrade that did not come to its end has left one: what that has changed already is
// nothing to go back to.
func (u *upgrade) keep(ctx context.Context, d *deployed, p *progress) error {
	before, finished, err := d.karmada.readRecord(ctx)
	if err != nil {
		return err
	}
	if before != nil && !finished {
		p.say("an upgrade has begun before: %s of %s is still what --rollback puts back", before.Agent,
			before.TakenAt.UTC().Format(time.RFC3339))
		return nil
	}
	r := &record{TakenAt: time.Now(), Controller: d.controllerImage, Agent: d.agentImage}
	templates, err := d.target.templatesOf()
	if err != nil {
		return err
	}
	identity, err := manifests("artifacts/controller/karmada.yaml")
	if err != nil {
		return err
	}
	if r.Templates, err = d.karmada.asTheyAre(ctx, templates); err != nil {
		return err
	}
	if r.Identity, err = d.karmada.asTheyAre(ctx, identity); err != nil {
		return err
	}
	if d.host != nil {
		host, err := d.target.upgradedOnHost("")
		if err != nil {
			return err
		}
		if r.Host, err = d.host.asTheyAre(ctx, host); err != nil {
			return err
		}
	}
	if err := d.karmada.writeRecord(ctx, r); err != nil {
		return err
	}
	p.say("what is installed is kept in ConfigMap %s/%s", v1alpha1.Namespace, recordName)
	return nil
}

// asTheyAre reads objects, as far as they exist, without what the API server and Karmada have added.
func (a *api) asTheyAre(ctx context.Context, objects []*unstructured.Unstructured) ([]map[string]any, error) {
	var out []map[string]any
	for _, o := range objects {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		err := a.Get(ctx, client.ObjectKeyFromObject(o), live)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", describe(o), err)
		}
		out = append(out, bare(live).Object)
	}
	return out, nil
}

// bare is an object as somebody would apply it.
func bare(live *unstructured.Unstructured) *unstructured.Unstructured {
	out := live.DeepCopy()
	delete(out.Object, "status")
	out.Object["metadata"] = map[string]any{}
	out.SetName(live.GetName())
	out.SetNamespace(live.GetNamespace())
	foreign := func(key string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return strings.HasSuffix(domain, "karmada.io") || domain == "deprecated.daemonset.template.generation" ||
			strings.HasSuffix(domain, "kubernetes.io") && domain != "app.kubernetes.io" &&
				domain != "pod-security.kubernetes.io"
	}
	own := func(in map[string]string) map[string]string {
		kept := map[string]string{}
		for key, value := range in {
			if !foreign(key) {
				kept[key] = value
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	}
	out.SetLabels(own(live.GetLabels()))
	out.SetAnnotations(own(live.GetAnnotations()))
	return out
}

// readRecord returns nil where there is none.
func (a *api) readRecord(ctx context.Context) (r *record, finished bool, err error) {
	var cm corev1.ConfigMap
	found, err := a.find(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: recordName}, &cm)
	if err != nil || !found {
		return nil, false, err
	}
	r = &record{}
	packed, err := gzip.NewReader(bytes.NewReader(cm.BinaryData[recordObjects]))
	if err == nil {
		err = json.NewDecoder(io.LimitReader(packed, maxRecord)).Decode(r)
	}
	if err != nil {
		return nil, false, &finding{
			expected: fmt.Sprintf("ConfigMap %s/%s to hold what was installed before", v1alpha1.Namespace, recordName),
			found:    err.Error(),
			remedy:   "delete it; to go back, run install of the former version's manifests"}
	}
	return r, cm.Data[recordFinished] == "true", nil
}

func (a *api) writeRecord(ctx context.Context, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode what is installed: %w", err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(text)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("compress what is installed: %w", err)
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: recordName,
			Labels: map[string]string{labelManagedBy: v1alpha1.ManagedBy}},
		BinaryData: map[string][]byte{recordObjects: packed.Bytes()},
	}
	if err := a.removeOne(ctx, cm.DeepCopy()); err != nil {
		return err
	}
	if err := a.Create(ctx, cm, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("keep what is installed: %w", err)
	}
	return nil
}

// finishRecord says that the upgrade came to its end.
func (a *api) finishRecord(ctx context.Context) error {
	var cm corev1.ConfigMap
	if err := a.Get(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: recordName}, &cm); err != nil {
		return fmt.Errorf("get what was kept: %w", err)
	}
	cm.Data = map[string]string{recordFinished: "true"}
	if err := a.Update(ctx, &cm, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("note the end of the upgrade: %w", err)
	}
	return nil
}

func objectsOf(list []map[string]any) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range list {
		out = append(out, &unstructured.Unstructured{Object: o})
	}
	return out
}

// goBack puts back what was kept: the members first, the reverse of the upgrade, unless no controller gives them turns.
func (u *upgrade) goBack(ctx context.Context, d *deployed, p *progress) error {
	r, _, err := d.karmada.readRecord(ctx)
	if err != nil {
		return err
	}
	if r == nil {
		return &finding{expected: "an upgrade to go back from", found: "nothing was kept by one",
			remedy: "to another version: run the plugin of that version"}
	}
	if len(r.Host) > 0 && d.host == nil {
		return &finding{expected: "the cluster that hosts Karmada, where the controller's Deployment was",
			found: "--controller=external", remedy: "leave it out, and name the cluster with --host-context"}
	}
	steps := []func() error{
		func() error { return u.membersBack(ctx, d, r, p) },
		func() error {
			return u.step(ctx, func(ctx context.Context) error { return u.controllerBack(ctx, d, r, p) })
		},
	}
	if why := d.fleet.leaderless(); why != "" {
		p.warn("the controller first, as it does not run")
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: recordName}}
	if err := d.karmada.removeOne(ctx, cm); err != nil {
		return err
	}
	p.say("back at %s, as of %s; the CRDs stay as they are", r.Agent, r.TakenAt.UTC().Format(time.RFC3339))
	return nil
}

func (u *upgrade) membersBack(ctx context.Context, d *deployed, r *record, p *progress) error {
	former := objectsOf(r.Templates)
	now, err := d.target.templatesOf()
	if err != nil {
		return err
	}
	was := map[string]bool{}
	for _, o := range former {
		was[describe(o)] = true
	}
	rolled, err := u.rolling(ctx, d, func() error {
		if err := d.karmada.apply(ctx, former...); err != nil {
			return err
		}
		added := slices.DeleteFunc(now, func(o *unstructured.Unstructured) bool { return was[describe(o)] })
		p.say("%d templates of the members' workloads are as before, %d that were new go", len(former), len(added))
		return d.karmada.remove(ctx, added...)
	})
	if err != nil {
		return err
	}
	return u.watch(ctx, d.karmada, rolled, p)
}

func (u *upgrade) controllerBack(ctx context.Context, d *deployed, r *record, p *progress) error {
	if err := d.karmada.apply(ctx, objectsOf(r.Identity)...); err != nil {
		return err
	}
	if d.host == nil {
		p.warn("controller: a process of your own, which has to be of its former version now")
		return nil
	}
	return u.applyController(ctx, d, objectsOf(r.Host), p)
}
