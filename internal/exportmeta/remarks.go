// SPDX-License-Identifier: Apache-2.0

package exportmeta

import (
	"fmt"
	"strings"

	"github.com/sealane-io/sealane/internal/clip"
)

// Limits of the remarks of one export. The CRDs of Bundle and ExportRecord state them, too.
const (
	// MaxRemarks is their number.
	MaxRemarks = 4
	// MaxRemark is the size of one in bytes.
	MaxRemark = 320
)

// Remarks returns texts as an export carries them: at most MaxRemarks, the last of which counts those that are left
// out, each of at most MaxRemark bytes that can be printed. The agent writes them so, and the broker reads them so,
// since they are anybody's words. To apply it again changes nothing.
func Remarks(texts []string) []string {
	var out []string
	for i, text := range texts {
		if len(out) == MaxRemarks-1 && len(texts)-i > 1 {
			return append(out, fmt.Sprintf("and %d more", len(texts)-i))
		}
		if text = strings.TrimSpace(clip.Line(clip.Text(text, MaxRemark))); text != "" {
			out = append(out, text)
		}
	}
	return out
}
