// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/sealane-io/sealane/lighthouse"

// directives returns the names of the plugins in the order in which a query passes them, which is
// CoreDNS's own order, with
// lighthouse before the other sources of names.
func directives() []string {
	return []string{
		"metadata",
		"cancel",
		"tls",
		"timeouts",
		"reload",
		"bufsize",
		"bind",
		"debug",
		"ready",
		"health",
		"pprof",
		"prometheus",
		"errors",
		"log",
		"dnstap",
		"acl",
		"any",
		"loadbalance",
		"cache",
		"rewrite",
		"minimal",
		"template",
		"transfer",
		"hosts",
		lighthouse.Name,
		"kubernetes",
		"loop",
		"forward",
	}
}
