// SPDX-License-Identifier: Apache-2.0

// Command kubectl-karmada-sealane is the administrator's tool: it installs Sealane on a Karmada control
// plane, decides which clusters belong, exports services and shows the state of the network. kubectl
// finds it under three names: kubectl-karmada-sealane, kubectl-sealane and karmadactl-sealane.
//
// It talks to the Karmada API, to the cluster that hosts Karmada while installing the controller, and
// to members only to look at what the Karmada API does not hold (round trip times) or to clean one that
// Karmada no longer reaches.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	os.Exit(run(os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}

// run executes one command line and returns the exit code.
func run(args []string, streams genericiooptions.IOStreams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// What the libraries log of their own accord, they return as errors too.
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	root := newRoot(args[0], streams)
	root.SetArgs(args[1:])
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(streams.ErrOut, "error: %v\n", outOfTime(err, root.PersistentFlags().Lookup("timeout").Value.String()))
		return 1
	}
	return 0
}

// invocation is how the user calls this binary: kubectl splits a plugin's file name at its dashes.
func invocation(arg0 string) string {
	switch strings.TrimSuffix(filepath.Base(arg0), ".exe") {
	case "kubectl-sealane":
		return "kubectl sealane"
	case "karmadactl-sealane":
		return "karmadactl-sealane"
	default:
		return "kubectl karmada sealane"
	}
}

func newRoot(arg0 string, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{IOStreams: streams, invocation: invocation(arg0)}
	root := &cobra.Command{
		Use:           "sealane",
		Short:         "One network and one service directory for the clusters of a Karmada control plane",
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: o.invocation},
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	o.addFlags(root.PersistentFlags())
	root.AddCommand(
		newPreflight(o), newInstall(o), newUpgrade(o), newUninstall(o),
		newJoin(o), newLeave(o),
		newExport(o), newUnexport(o),
		newStatus(o), newShow(o), newUI(o), newDiagnose(o), newExplain(o), newGather(o), newVerify(o), newBench(o),
		newRotateKeys(o), newVersion(o),
		newDocs(root),
	)
	root.SetHelpCommand(newHelp(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	o.complete(root)
	refuseUnknown(root)
	checkUsage(root)
	return root
}
