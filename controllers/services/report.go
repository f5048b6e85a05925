// SPDX-License-Identifier: Apache-2.0

package services

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
	"github.com/sealane-io/sealane/internal/clip"
)

const (
	// maxReport is the largest status of a Bundle that is read, in bytes.
	maxReport = 1 << 20
	// maxReported is how many exports are decoded of one report: small ones would take a hundred times
	// their size in memory.
	maxReported = 10 * maxExports
	// maxImportProblems is how many bytes of problems with imports are read of one report. An agent writes half as many.
	maxImportProblems = 256 << 10
	// maxInflation is how many bytes of memory one byte of JSON may take, as what is decoded is held. Nothing that is
	// valid takes as much, be it a short address without anything else; "{}" can take a hundred.
	maxInflation = 12
)

// report is what a member says of one shard.
type report struct {
	revision int64
	exports  []v1alpha1.Export
	// raw are the exports, and rawImports the imports, as they were written.
	raw, rawImports json.RawMessage
	// digest of the exports as they were written: another one is a change of them. digests are those of each, sorted.
	digest  uint64
	digests []uint64
	// imports that do not exist or cannot be used in the member.
	imports []v1alpha1.ImportProblem
	// malformed counts the exports that could not be decoded.
	malformed int
}

// unusable says why a whole report is not used.
type unusable struct{ reason, message string }

func (u *unusable) Error() string { return u.message }

// readReport decodes what a member wrote into the status of a Bundle, which may be anything. It returns nil
// when there is no report yet. An export that cannot be decoded costs the others nothing. What the report before said
// with the same words is not decoded again.
func readReport(raw []byte, before *report) (*report, error) {
	if raw == nil {
		return nil, nil
	}
	if len(raw) > maxReport {
		return nil, &unusable{v1alpha1.ReasonStatusTooLarge, fmt.Sprintf("it has %d bytes, at most %d are read",
			len(raw), maxReport)}
	}
	var status struct {
		ObservedRevision int64           `json:"observedRevision"`
		Exports          json.RawMessage `json:"exports"`
		Imports          json.RawMessage `json:"imports"`
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, &unusable{ReasonInvalidReport, "it cannot be decoded: " + clip.Quote(err.Error())}
	}
	out := &report{revision: status.ObservedRevision, raw: status.Exports}
	out.readImports(status.Imports, before)
	if before != nil && bytes.Equal(status.Exports, before.raw) {
		out.exports, out.malformed = before.exports, before.malformed
		out.digest, out.digests = before.digest, before.digests
	} else if err := out.decode(status.Exports); err != nil {
		return nil, err
	}
	if status.ObservedRevision == 0 {
		return nil, nil
	}
	return out, nil
}

// readHalf decodes what a member wrote into the status of a half: whether it has what was sent, and what of that is not
// usable if there is room for it.
func readHalf(raw []byte, before *report, room int) (*report, error) {
	if raw == nil {
		return nil, nil
	}
	var status struct {
		ObservedRevision int64           `json:"observedRevision"`
		Imports          json.RawMessage `json:"imports"`
	}
	if len(raw) > maxReport {
		return nil, &unusable{v1alpha1.ReasonStatusTooLarge, fmt.Sprintf("it has %d bytes, at most %d are read",
			len(raw), maxReport)}
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, &unusable{ReasonInvalidReport, "it cannot be decoded: " + clip.Quote(err.Error())}
	}
	out := &report{revision: status.ObservedRevision}
	if len(raw) <= room {
		out.readImports(status.Imports, before)
	}
	return out, nil
}

// readImports decodes what is not usable. What cannot be decoded, or is too much, is no reason to ignore the rest.
func (out *report) readImports(raw json.RawMessage, before *report) {
	if len(raw) > maxImportProblems {
		return
	}
	out.rawImports = raw
	if before != nil && bytes.Equal(raw, before.rawImports) {
		out.imports = before.imports
	} else if json.Unmarshal(raw, &out.imports) != nil || inflated(reflect.ValueOf(out.imports), raw) {
		out.imports = nil
	}
}

// decode decodes a list of exports.
func (out *report) decode(raw json.RawMessage) error {
	var exports []json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &exports); err != nil {
			return &unusable{ReasonInvalidReport, "its exports cannot be decoded: " + clip.Quote(err.Error())}
		}
	}
	if len(exports) > maxReported {
		return &unusable{v1alpha1.ReasonStatusTooLarge, fmt.Sprintf("it has %d exports, at most %d are read",
			len(exports), maxReported)}
	}
	out.exports = []v1alpha1.Export{}
	digest, one := fnv.New64a(), fnv.New64a()
	for _, data := range exports {
		digest.Write(data)
		one.Reset()
		one.Write(data)
		out.digests = append(out.digests, one.Sum64())
		var e v1alpha1.Export
		if json.Unmarshal(data, &e) != nil || inflated(reflect.ValueOf(e), data) {
			out.malformed++
			continue
		}
		// as the wire carries it: a record with a fraction would never be what is read of it
		e.CreatedAt = metav1.NewTime(e.CreatedAt.UTC().Truncate(time.Second))
		// With its offset from UTC a time can leave the years that have four digits: nobody could read it again.
		if year := e.CreatedAt.Year(); year < 1 || year > 9999 {
			out.malformed++
			continue
		}
		out.exports = append(out.exports, e)
	}
	out.exports = slices.Clip(out.exports)
	out.digest = digest.Sum64()
	slices.Sort(out.digests)
	return nil
}

// inflated says that a value takes far more memory than the JSON that it was decoded from.
func inflated(v reflect.Value, raw []byte) bool {
	return int(v.Type().Size())+behind(v) > maxInflation*len(raw)
}

// behind is what a value takes of memory beside itself, in bytes.
func behind(v reflect.Value) int {
	size := 0
	switch v.Kind() {
	case reflect.String:
		size = v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			size = int(v.Type().Elem().Size()) + behind(v.Elem())
		}
	case reflect.Slice:
		size = v.Len() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			size += behind(v.Index(i))
		}
	case reflect.Map:
		size = v.Len() * int(v.Type().Key().Size()+v.Type().Elem().Size())
		for i := v.MapRange(); i.Next(); {
			size += behind(i.Key()) + behind(i.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			size += behind(v.Field(i))
		}
	default:
	}
	return size
}
