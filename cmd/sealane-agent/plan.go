// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/memberagent/node"
)

const (
	// planSocket in the state directory is where the node agent that has its turn says what it wants of the kernel.
	// Nobody but root reaches it.
	planSocket = "plan.sock"
	planPath   = "/plan"
	// planTime is how long an answer may take, and maxPlan how long it may be, in bytes.
	planTime = 20 * time.Second
	maxPlan  = 32 << 20
)

// planner is a node agent that says what it has planned.
type planner interface {
	Planned(ctx context.Context) (node.Planned, error)
}

// servePlan answers at the socket until the context ends. A socket that cannot be had is logged: traffic matters more.
func servePlan(ctx context.Context, stateDir string, agent planner) {
	log, path := logr.FromContextOrDiscard(ctx), filepath.Join(stateDir, planSocket)
	// One that died has left its own; one that runs does not have its turn beside this one.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Error(err, "the plan cannot be asked for")
		return
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		log.Error(err, "the plan cannot be asked for")
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc(planPath, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), planTime)
		defer cancel()
		planned, err := agent.Planned(ctx)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(planned)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: planTime}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "the plan cannot be asked for any more")
		}
	}()
}

// newPlanCommand is for people, and for the plugin's show plan, which executes it in the node agent's pod.
func newPlanCommand() *cobra.Command {
	var stateDir, output string
	c := &cobra.Command{
		Use:   "plan",
		Short: "Print what this node's agent wants of the kernel, and what there differs; nothing is changed",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("expected -o to be text or json, found %q", output)
			}
			ctx, cancel := context.WithTimeout(c.Context(), planTime)
			defer cancel()
			return writePlan(ctx, c.OutOrStdout(), filepath.Join(stateDir, planSocket), output)
		},
	}
	c.Flags().StringVar(&stateDir, "state-dir", "/var/lib/sealane", "directory on the node that has the agent's socket")
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return c
}

// writePlan asks the agent that listens at a socket.
func writePlan(ctx context.Context, out io.Writer, socket, format string) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+planPath, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the node agent: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the node agent, which listens there when it has its turn: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPlan))
	if err != nil {
		return fmt.Errorf("read the node agent's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the node agent does not say: %s", body)
	}
	if format == "json" {
		_, err = out.Write(body)
		return err
	}
	var planned node.Planned
	if err := json.Unmarshal(body, &planned); err != nil {
		return fmt.Errorf("decode the node agent's answer: %w", err)
	}
	for _, line := range planned.Holds {
		fmt.Fprintln(out, line)
	}
	if planned.Problem != "" {
		fmt.Fprintf(out, "\nthe last sync failed: %s\n", planned.Problem)
	}
	if len(planned.Changes) == 0 {
		fmt.Fprint(out, "\nthe kernel holds that, and no more\n")
		return nil
	}
	fmt.Fprintf(out, "\nthe kernel differs, in %d places:\n", len(planned.Changes))
	for _, change := range planned.Changes {
		fmt.Fprintln(out, change)
	}
	return nil
}
