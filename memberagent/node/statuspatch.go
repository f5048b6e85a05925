// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// statusPatch is a merge patch by which a Gateway says what status says and nothing else, but for silentSince, which is
// the cluster agent's. A merge keeps what a patch leaves out, in objects within objects too: what is empty is null.
func statusPatch(status v1alpha1.GatewayStatus) ([]byte, error) {
	fields, err := whole(status)
	if err != nil {
		return nil, err
	}
	delete(fields, "silentSince")
	if status.Endpoint != nil {
		if err := replace(fields, "endpoint", *status.Endpoint); err != nil {
			return nil, err
		}
	}
	if status.Keys != nil {
		if err := replace(fields, "keys", *status.Keys); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]any{"status": fields})
}

// replace sets a field to an object of which nothing is left out.
func replace(fields map[string]json.RawMessage, name string, object any) error {
	inner, err := whole(object)
	if err != nil {
		return err
	}
	text, err := json.Marshal(inner)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	fields[name] = text
	return nil
}

// whole returns the fields of a struct by their names in JSON; those that JSON leaves out are null.
func whole(object any) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("decode %T: %w", object, err)
	}
	t := reflect.TypeOf(object)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if _, ok := fields[name]; !ok {
			fields[name] = nil
		}
	}
	return fields, nil
}
