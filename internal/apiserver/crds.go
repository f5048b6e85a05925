// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// CRDs returns the directory of Sealane's own CRDs.
func CRDs() (string, error) {
	root, err := moduleDir("github.com/sealane-io/sealane")
	return filepath.Join(root, "artifacts", "crds"), err
}

// KarmadaCRDs returns the directory of Karmada's CRDs.
func KarmadaCRDs() (string, error) {
	root, err := moduleDir("github.com/karmada-io/karmada")
	return filepath.Join(root, "charts", "karmada", "_crds", "bases"), err
}

// MCSCRDs returns the directory of the CRDs of the MCS API.
func MCSCRDs() (string, error) {
	root, err := moduleDir("sigs.k8s.io/mcs-api")
	return filepath.Join(root, "config", "crd"), err
}

// moduleDir returns where a module of the build is on disk.
func moduleDir(module string) (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// installCRDs creates the CRDs and waits until they are served.
func installCRDs(ctx context.Context, config *rest.Config, paths []string) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("build a scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	crds, err := readCRDs(paths)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := c.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
				return false, err
			}
			return established(crd), nil
		}); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

func readCRDs(paths []string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(file) != ".yaml" {
				return err
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			crd := new(apiextensionsv1.CustomResourceDefinition)
			if err := yaml.Unmarshal(data, crd); err != nil {
				return fmt.Errorf("parse %s: %w", file, err)
			}
			if crd.Kind == "CustomResourceDefinition" {
				// A conversion webhook is of no use here: nobody runs it.
				crd.Spec.Conversion = nil
				crds = append(crds, crd)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read CRDs from %s: %w", path, err)
		}
	}
	return crds, nil
}

// ClusterCRD returns the file of a CRD that stands for Karmada's aggregated Cluster API.
func ClusterCRD() (string, error) {
	root, err := moduleDir("github.com/sealane-io/sealane")
	return filepath.Join(root, "internal", "apiserver", "karmada", "clusters.yaml"), err
}
