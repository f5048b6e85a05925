// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sealane-io/sealane/cmd/kubectl-karmada-sealane/ui"
)

// outputSVG is the format of ui for documents.
const outputSVG = "svg"

// uiMemberTimeout is how long ui waits for each member, so that one that does not answer delays the others little.
const uiMemberTimeout = 2 * time.Second

// mapping is a command line of ui.
type mapping struct {
	diagnoses
	port int
}

func newUI(o *options) *cobra.Command {
	u := &mapping{diagnoses: diagnoses{options: o}}
	cmd := &cobra.Command{
		Use: "ui", Short: "Show a map of the network in the browser, live, or write it as a picture", Args: cobra.NoArgs,
		Long: `Show a map of the network in the browser: the clusters, their gateways and the connections between them, the
services with who serves whom, and every problem with what was expected, what was found and what to do. It says what
show and diagnose say, follows changes within about 2 seconds, and follows a packet as explain does.

The command listens on a loopback address, which this machine alone reaches, prints the address of the page, and ends
with Ctrl-C. The address holds a token that is new with every run: other users of the machine get nothing without it.
Nothing can be changed by the page, nothing is installed in a cluster, and the page loads nothing from elsewhere.
Members are asked as in show, only while a page is open. With --timeout, the command ends after that time.

With -o svg the map is written to the standard output, as a picture for documents. With --from, the map is that of what
gather has written to a file, and nobody is asked.`,
		Example: `  ` + o.invocation + ` ui
  ` + o.invocation + ` ui --port 8443 -C c1,c2
  ` + o.invocation + ` ui -o svg >map.svg
  ` + o.invocation + ` ui --from sealane-gather.tgz`,
		RunE: func(cmd *cobra.Command, _ []string) error { return u.run(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVarP(&u.clusters, "clusters", "C", nil, "members to show (default: all)")
	f.StringVarP(&u.output, "output", "o", "", "svg writes a picture; without it the map is served")
	f.IntVar(&u.port, "port", 0, "port to listen on, of the loopback address (default: any that is free)")
	f.DurationVar(&u.memberTimeout, "member-timeout", uiMemberTimeout, "how long to wait for each member")
	f.StringVar(&u.from, "from", "",
		"show what gather has written to this file, as of the time it was taken, and ask nobody")
	u.host.addFlags(f)
	_ = cmd.RegisterFlagCompletionFunc("output", asFunction(fixed(outputSVG))) // the flag is there
	return cmd
}

func (u *mapping) run(cmd *cobra.Command) error {
	if u.output != "" && u.output != outputSVG {
		return &finding{expected: "-o to be svg, or to be left out", found: fmt.Sprintf("%q", u.output),
			remedy: "leave -o out for a page in the browser; show and diagnose write tables, JSON and YAML"}
	}
	if u.port < 0 || u.port > 65535 {
		return &finding{expected: "--port from 1 to 65535, or 0 for any that is free", found: strconv.Itoa(u.port),
			remedy: "choose one that is free, or leave it out"}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), u.timeout)
	defer cancel()
	source := newLiveMap(&u.diagnoses)
	m, err := source.Read(ctx)
	if err != nil {
		return err
	}
	if u.output == outputSVG {
		_, err := u.Out.Write(m.SVG())
		return err
	}
	ctx = cmd.Context()
	if cmd.Flags().Changed("timeout") {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, u.timeout)
		defer end()
	}
	return u.serve(ctx, source)
}

// serve until ctx ends, which is no error.
func (u *mapping) serve(ctx context.Context, source ui.Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := listenLoopback(ctx, u.port)
	if err != nil {
		return &finding{expected: "to listen on a loopback address", found: err.Error(),
			remedy: "choose another --port, or leave it out for any that is free"}
	}
	server, err := ui.NewServer(ctx, listener, source, ui.NewToken())
	if err != nil {
		_ = listener.Close()
		return err
	}
	fmt.Fprintf(u.Out, `The map is at

  %s

for browsers of this machine, until Ctrl-C. Keep the address to yourself: who has it, and is on this machine, sees
the map.
`, server.URL())
	return server.Serve() //nolint:contextcheck // it has it
}

// listenLoopback listens by IPv4, or by IPv6 on a machine that has no other.
func listenLoopback(ctx context.Context, port int) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		return l, nil
	}
	if l, err := config.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(port))); err == nil {
		return l, nil
	}
	return nil, err
}
