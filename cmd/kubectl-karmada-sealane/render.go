// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Values of --render: the API servers that objects are for.
const (
	renderKarmada = "karmada"
	renderHost    = "host"
)

// Files of a base for kustomize.
const (
	baseObjects       = "sealane.yaml"
	baseKustomization = "kustomization.yaml"
)

// baseMark is what both begin with: what is found without it is somebody's own, or for another API server.
func (in *install) baseMark() string {
	return "# Written by install --render=" + in.render + ". Change it by an overlay: the next one writes it anew.\n"
}

// renderObjects prints or writes what install applies on one API server, in the order in which it does, each object
// once.
func (in *install) renderObjects() error {
	objects, err := in.rendered()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, object := range objects {
		if seen[describe(object)] {
			continue
		}
		seen[describe(object)] = true
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("render %s: %w", describe(object), err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	if in.outputDir != "" {
		return in.writeBase(out.Bytes())
	}
	_, err = in.Out.Write(out.Bytes())
	return err
}

// rendered are the objects of an API server, in the order to apply them.
func (in *install) rendered() ([]*unstructured.Unstructured, error) {
	if err := in.checkRender(); err != nil {
		return nil, err
	}
	switch in.render {
	case renderHost:
		return in.controller.renderedOnHost()
	case renderKarmada:
	case "":
		return nil, &finding{expected: "--output-dir with --render", found: "--output-dir alone",
			remedy: "add --render, or leave it out to install"}
	default:
		return nil, &finding{expected: "--render=" + renderKarmada + " or --render=" + renderHost,
			found: fmt.Sprintf("%q", in.render), remedy: "choose one of the two"}
	}
	own, err := crds()
	if err != nil {
		return nil, err
	}
	templates, err := in.controller.bundle()
	if err != nil {
		return nil, err
	}
	identity, err := manifests("artifacts/controller/karmada.yaml")
	if err != nil {
		return nil, err
	}
	return slices.Concat(own, templates, identity), nil
}

// checkRender refuses flags of which nothing would be rendered: what they say goes into the ClusterSet, which is not.
func (in *install) checkRender() error {
	for _, flag := range []struct {
		name, field string
		given       bool
	}{
		{"--globalnet", "spec.globalnet.mode", in.globalnet != ""},
		{"--clusters", "spec.clusterAffinity", len(in.clusters) > 0},
		{"--clusterset", "metadata.name", in.clusterSet != defaultClusterSet},
	} {
		if flag.given {
			return &finding{expected: "nothing about the ClusterSet with --render, which leaves that to you", found: flag.name,
				remedy: "leave it out, and say it in your ClusterSet by " + flag.field}
		}
	}
	return nil
}

// writeBase writes the objects as a base for kustomize.
func (in *install) writeBase(objects []byte) error {
	mark := in.baseMark()
	// The last two are other names by which kustomize takes the second, and refuses a directory with two of them.
	for _, name := range []string{baseObjects, baseKustomization, "kustomization.yml", "Kustomization"} {
		path := filepath.Join(in.outputDir, name)
		have, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !bytes.HasPrefix(have, []byte(mark)):
			return &finding{expected: "a directory with nothing by that name but what --render=" + in.render + " wrote",
				found: path + ", which it did not write", remedy: "name another directory, and refer to it there as a base"}
		}
	}
	if err := os.MkdirAll(in.outputDir, 0o755); err != nil {
		return err
	}
	objectsFile, path := filepath.Join(in.outputDir, baseObjects), filepath.Join(in.outputDir, baseKustomization)
	if err := replaceFile(objectsFile, append([]byte(mark), objects...)); err != nil {
		return err
	}
	kustomization := mark + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- " +
		baseObjects + "\n"
	if err := replaceFile(path, []byte(kustomization)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(in.ErrOut, "written: %s and %s in %s\n", baseKustomization, baseObjects, in.outputDir)
	return err
}

// replaceFile writes a file whole: who reads it sees what was before, or all.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
