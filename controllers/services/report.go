// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	// maxReport is the largest status of a Bundle that is read, in bytes.
	maxReport = 1 << 20
	// maxReported is how many exports are decoded of one report: small ones would take a hundred times
	// their size in memory.
	maxReported = 10 * maxExports
)

// report is what a member says of one shard.
type report struct {
	revision int64
	exports  []v1alpha1.Export
	// digest of the exports as they were written: another one is a change of them.
	digest uint64
	// imports that do not exist or cannot be used in the member.
	imports []v1alpha1.ImportProblem
	// malformed counts the exports that could not be decoded.
	malformed int
}

// unusable says why a whole report is not used.
type unusable struct{ reason, message string }

func (u *unusable) Error() string { return u.message }

// readReport decodes what a member wrote into the status of a Bundle, which may be anything. It returns nil
// when there is no report yet. An export that cannot be decoded costs the others nothing.
func readReport(raw []byte) (*report, error) {
	if raw == nil {
		return nil, nil
	}
	if len(raw) > maxReport {
		return nil, &unusable{v1alpha1.ReasonStatusTooLarge, fmt.Sprintf("it has %d bytes, at most %d are read",
			len(raw), maxReport)}
	}
	var status struct {
		ObservedRevision int64             `json:"observedRevision"`
		Exports          []json.RawMessage `json:"exports"`
		Imports          json.RawMessage   `json:"imports"`
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, &unusable{ReasonInvalidReport, "it cannot be decoded: " + clip.Quote(err.Error())}
	}
	if len(status.Exports) > maxReported {
		return nil, &unusable{v1alpha1.ReasonStatusTooLarge, fmt.Sprintf("it has %d exports, at most %d are read",
			len(status.Exports), maxReported)}
	}
	if status.ObservedRevision == 0 {
		return nil, nil
	}
	out := &report{revision: status.ObservedRevision, exports: make([]v1alpha1.Export, 0, len(status.Exports))}
	// What cannot be decoded is no reason to ignore the exports.
	if json.Unmarshal(status.Imports, &out.imports) != nil {
		out.imports = nil
	}
	digest := fnv.New64a()
	for _, data := range status.Exports {
		digest.Write(data)
		var e v1alpha1.Export
		if json.Unmarshal(data, &e) != nil {
			out.malformed++
			continue
		}
		out.exports = append(out.exports, e)
	}
	out.digest = digest.Sum64()
	return out, nil
}
