// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// imageTag is the tag of an image reference, "" where it has none.
func imageTag(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	last := ref[strings.LastIndex(ref, "/")+1:]
	_, tag, _ := strings.Cut(last, ":")
	return tag
}
