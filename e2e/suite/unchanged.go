// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sealane-io/sealane/e2e/lab"
)

// waitUnchanged waits until the lab is in the state that every package starts from and leaves: what tests
// delete may take a moment to go.
func waitUnchanged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return waitFor(ctx, unchanged)
}

// unchanged tells what differs from a lab with Sealane connected, the workload ready and nothing exported.
func unchanged(ctx context.Context) error {
	var errs []error
	for _, process := range Lab().Processes() {
		if !Lab().Running(process) {
			errs = append(errs, fmt.Errorf("process %s is not running", process))
		}
	}
	for _, kind := range []string{"Ready", "Connected"} {
		status, err := JSONPath(ctx, lab.ContextKarmada, fmt.Sprintf(`{.status.conditions[?(@.type==%q)].status}`, kind), "clusterset", "default")
		if err == nil && status != "True" {
			err = fmt.Errorf("ClusterSet default: %s is %q", kind, status)
		}
		errs = append(errs, err)
	}
	for _, context := range Lab().Contexts() {
		lists := []string{"serviceexports.multicluster.x-k8s.io"}
		if context == lab.ContextKarmada {
			lists = append(lists, "servicepolicies.sealane.io")
		}
		for _, list := range lists {
			found, err := TryKubectl(ctx, "--context", context, "get", list, "-A", "-o", "name")
			if err == nil && found != "" {
				err = fmt.Errorf("%s: left over: %s", context, strings.ReplaceAll(found, "\n", " "))
			}
			errs = append(errs, err)
		}
	}
	for _, c := range Lab().Topology.Clusters {
		for _, node := range c.Nodes {
			errs = append(errs, nodeUnchanged(ctx, c.Name, node.Name))
		}
	}
	return errors.Join(errs...)
}

// nodeUnchanged tells whether a node is Ready and no test's firewall rule is left on it.
func nodeUnchanged(ctx context.Context, cluster, node string) error {
	ready, err := JSONPath(ctx, cluster, `{.status.conditions[?(@.type=="Ready")].status}`, "node", node)
	if err == nil && ready != "True" {
		err = fmt.Errorf("node %s: Ready is %q", node, ready)
	}
	tables, errTables := Lab().InNode(ctx, node, "nft", "list", "tables")
	if strings.Contains(string(tables), " "+isolationTable) {
		errTables = fmt.Errorf("node %s: the firewall table %s is left over", node, isolationTable)
	}
	return errors.Join(err, errTables)
}
