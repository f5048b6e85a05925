// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/e2e/lab"
)

// cleanLogs returns an error with the lines that no process of Sealane may have logged since a time.
func cleanLogs(ctx context.Context, since time.Time) error {
	var errs []error
	logs, err := logsOfSealane(ctx)
	if err != nil {
		errs = append(errs, err)
	}
	for origin, log := range logs {
		for _, line := range faults(log, since) {
			errs = append(errs, fmt.Errorf("%s logged: %s", origin, line))
		}
	}
	return errors.Join(errs...)
}

// logsOfSealane reads the logs of the controller, and of the agents and DNS servers of every node: of the pods that are
// there, with those of their containers that were restarted. A log's key says where it is from.
func logsOfSealane(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	var errs []error
	const controller = "sealane-controller"
	log, err := os.ReadFile(filepath.Join(Lab().Dir, "logs", controller+".log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	out[controller] = string(log)
	for _, c := range Lab().Topology.Clusters {
		for _, node := range c.Nodes {
			log, err := logsOfNode(ctx, node)
			if err != nil {
				errs = append(errs, fmt.Errorf("read the logs of node %s: %w", node.Name, err))
			}
			out[node.Name] = log
		}
	}
	return out, errors.Join(errs...)
}

func logsOfNode(ctx context.Context, node lab.Node) (string, error) {
	log, err := Lab().InNode(ctx, node.Name, "find", "/var/log/pods", "-path", "*/"+v1alpha1.Namespace+"_*",
		"-name", "*.log",
		"-exec", "cat", "{}", "+")
	return string(log), err
}

// timestamp is that of a line of a container's log, or of a structured line.
var timestamp = regexp.MustCompile(`^(?:\{"time":")?(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d))`)

// faults are the lines of a log, written since a time, that no process may log.
func faults(log string, since time.Time) []string {
	var out []string
	var at time.Time
	for line := range strings.Lines(log) {
		if m := timestamp.FindStringSubmatch(line); m != nil {
			if t, err := time.Parse(time.RFC3339Nano, m[1]); err == nil {
				at = t
			}
		}
		// A line without a time is as old as the one before it.
		if !at.Before(since) && isFault(line) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// isFault says whether a line warns of a field that the API server does not know, or is an error for a write that was
// refused because the writer's copy of the object was out of date.
func isFault(line string) bool {
	if strings.Contains(line, "unknown field") {
		return true
	}
	return strings.Contains(line, `"level":"ERROR"`) && strings.Contains(line, "the object has been modified") &&
		!slices.ContainsFunc(conflictsOfLibraries, func(by string) bool { return strings.Contains(line, `"msg":"`+by) })
}

// conflictsOfLibraries are the beginnings of what libraries log at ERROR when their own write was refused. Whoever
// calls them gets the error too, and tries again.
var conflictsOfLibraries = []string{
	// Karmada's CreateOrUpdateWork, when its five tries met updates of the Work's status by Karmada.
	"Failed to create/update work ",
	// client-go's leader election, when an answer to its last update of the Lease was lost.
	"Failed to update lock optimistically: ",
}
