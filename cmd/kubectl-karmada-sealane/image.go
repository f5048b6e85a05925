// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// untagged is said of a controller whose version nobody tells: its image is named by a digest.
const untagged = "its image has no tag to tell the version by"

// imageTag is the tag of an image reference, "" where it has none.
func imageTag(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	last := ref[strings.LastIndex(ref, "/")+1:]
	_, tag, _ := strings.Cut(last, ":")
	return tag
}
