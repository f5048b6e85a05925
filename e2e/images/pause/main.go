// SPDX-License-Identifier: Apache-2.0

// Command pause holds a pod's namespaces until it is told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// As pid 1 of a pod that shares its pid namespace it inherits orphans;
	// ignoring SIGCHLD lets the kernel reap them.
	signal.Ignore(syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
