// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"k8s.io/client-go/discovery"
)

func TestStartServesInstalledCRDs(t *testing.T) {
	var paths []string
	for _, find := range []func() (string, error){CRDs, KarmadaCRDs, MCSCRDs} {
		path, err := find()
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	config := Start(t, paths...)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range []string{"sealane.io/v1alpha1", "work.karmada.io/v1alpha1", "policy.karmada.io/v1alpha1",
		"multicluster.x-k8s.io/v1alpha1"} {
		if _, err := d.ServerResourcesForGroupVersion(gv); err != nil {
			t.Errorf("%s: %v", gv, err)
		}
	}
}
