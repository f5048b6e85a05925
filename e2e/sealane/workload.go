// SPDX-License-Identifier: Apache-2.0

package sealane

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"text/template"

	"github.com/sealane-io/sealane/e2e/lab"
)

//go:embed workload.yaml
var workload string

// Workload is what the walkthrough runs in one cluster: a client and a server on each node, a client on the
// host network, and, with Replicas, the Service whereami-cs and its Deployment.
type Workload struct {
	Cluster  lab.Cluster
	Replicas int
}

// Apply creates the workload in its cluster.
func (w Workload) Apply(ctx context.Context, l *lab.Lab) error {
	t, err := template.New("workload").Parse(workload)
	if err != nil {
		return fmt.Errorf("parse workload: %w", err)
	}
	var manifests bytes.Buffer
	err = t.Execute(&manifests, map[string]any{"Cluster": w.Cluster, "Replicas": w.Replicas,
		"Client": lab.ImageClient, "Whereami": lab.ImageWhereami})
	if err != nil {
		return fmt.Errorf("render workload: %w", err)
	}
	return Apply(ctx, l, w.Cluster.Name, manifests.Bytes())
}

// Apply applies manifests in a context of the lab.
func Apply(ctx context.Context, l *lab.Lab, context string, manifests []byte) error {
	cmd := exec.CommandContext(ctx, l.Tool("kubectl"), "--kubeconfig="+l.Kubeconfig(), "--context="+context,
		"apply", "--server-side", "--force-conflicts", "-f", "-")
	cmd.Stdin = bytes.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply in %s: %w: %s", context, err, out)
	}
	return nil
}

// Answer is what a whereami server tells of itself and of its client.
type Answer struct {
	Pod       string `json:"pod"`
	Node      string `json:"node"`
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Client    string `json:"client"`
}

// ParseAnswer reads a whereami server's answer.
func ParseAnswer(raw []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(bytes.TrimSpace(raw), &a); err != nil {
		return Answer{}, fmt.Errorf("expected an answer of whereami, found %q: %w", raw, err)
	}
	return a, nil
}
