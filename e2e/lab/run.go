// SPDX-License-Identifier: Apache-2.0

package lab

// Run starts a program of the caller's as one of the lab's processes, in the host's namespaces, unless it
// runs already. It is stopped with the lab, and StopProcess and the like know it by name.
func (l *Lab) Run(name string, argv ...string) error {
	return l.procs.Ensure(process{Name: name, Argv: argv})
}
