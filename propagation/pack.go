// SPDX-License-Identifier: Apache-2.0

package propagation

import (
	"errors"

	workv1alpha1 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha1"
	"github.com/klauspost/compress/s2"
)

const (
	// packed is the first byte of a manifest that is: JSON never has it, as it is not UTF-8.
	packed = 0xff
	// packFrom is the least size of one that is worth it.
	packFrom = 1 << 10
)

var errPacked = errors.New("the manifest is not as it was packed")

// Pack is what a cache keeps of a Work (a cache.TransformFunc): not who owns which field, and the manifest compressed.
// With many members the manifests would be a third of what the broker has in memory, and all but what somebody else
// wrote it knows already. They are read by Spec alone; whoever writes a Work that is packed gets an error of encoding.
func Pack(obj any) (any, error) {
	work, ok := obj.(*workv1alpha1.Work)
	if !ok {
		return obj, nil
	}
	work.ManagedFields = nil
	for i := range work.Spec.Workload.Manifests {
		raw := &work.Spec.Workload.Manifests[i].Raw
		if len(*raw) < packFrom || (*raw)[0] == packed {
			continue
		}
		out := make([]byte, 1+s2.MaxEncodedLen(len(*raw)))
		out[0] = packed
		n := len(s2.Encode(out[1:], *raw))
		*raw = append(make([]byte, 0, 1+n), out[:1+n]...)
	}
	return work, nil
}

// Manifest returns the JSON of the one object that a Work carries, packed or not.
func Manifest(work *workv1alpha1.Work) ([]byte, error) {
	manifests := work.Spec.Workload.Manifests
	if len(manifests) != 1 {
		return nil, ErrNoManifest
	}
	raw := manifests[0].Raw
	if len(raw) == 0 || raw[0] != packed {
		return raw, nil
	}
	out, err := s2.Decode(nil, raw[1:])
	if err != nil {
		return nil, errors.Join(errPacked, err)
	}
	return out, nil
}
