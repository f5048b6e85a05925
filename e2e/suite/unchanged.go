// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sealane-io/sealane/e2e/lab"
)

// waitUnchanged waits until Sealane works and nothing is exported but what was before: what tests delete may take a
// moment to go.
func waitUnchanged(ctx context.Context, before []string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return waitFor(ctx, func(ctx context.Context) error {
		after, err := exports(ctx)
		left := slices.DeleteFunc(after, func(e string) bool { return slices.Contains(before, e) })
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left over: %s", strings.Join(left, ", "))
		}
		return errors.Join(inOrder(ctx), err)
	})
}

// inOrder tells which process, node or part of Sealane does not work, or what is left of it where the tests install and
// remove it.
func inOrder(ctx context.Context) error {
	var errs []error
	for _, process := range Lab().Processes() {
		if !Lab().Running(process) {
			errs = append(errs, fmt.Errorf("process %s is not running", process))
		}
	}
	conditions := []string{"Ready", "Connected"}
	if Lab().Topology.PullImages {
		conditions = nil
	}
	for _, kind := range conditions {
		path := fmt.Sprintf(`{.status.conditions[?(@.type==%q)].status}`, kind)
		status, err := JSONPath(ctx, lab.ContextKarmada, path, "clusterset", "default")
		if err == nil && status != "True" {
			err = fmt.Errorf("ClusterSet default: %s is %q", kind, status)
		}
		errs = append(errs, err)
	}
	for _, c := range Lab().Topology.Clusters {
		for _, node := range c.Nodes {
			errs = append(errs, nodeUnchanged(ctx, c.Name, node.Name))
			if Lab().Topology.PullImages {
				errs = append(errs, nodeClean(ctx, Lab(), node.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// exports lists the ServiceExports and ServicePolicies of every context, as "context: namespace/name".
func exports(ctx context.Context) ([]string, error) {
	if Lab().Topology.PullImages {
		return nil, nil // the API servers do not know of any
	}
	var found []string
	for _, context := range Lab().Contexts() {
		resources := "serviceexports.multicluster.x-k8s.io"
		if context == lab.ContextKarmada {
			resources += ",servicepolicies.sealane.io"
		}
		out, err := TryKubectl(ctx, "--context", context, "get", resources, "-A",
			"-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
		if err != nil {
			return nil, err
		}
		for object := range strings.Lines(out) {
			found = append(found, context+": "+strings.TrimSpace(object))
		}
	}
	return found, nil
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
