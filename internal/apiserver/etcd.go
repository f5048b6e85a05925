// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Compact has etcd forget all revisions but the present one, at once, and returns which one that is. Who goes on from
// an older one is told that it is gone.
func (s *Server) Compact(ctx context.Context) (revision string, err error) {
	var found struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	// A key, in Base64, that nobody has.
	if err := s.ask(ctx, "/v3/kv/range", map[string]any{"key": "AA=="}, &found); err != nil {
		return "", err
	}
	err = s.ask(ctx, "/v3/kv/compaction", map[string]any{"revision": found.Header.Revision, "physical": true}, nil)
	return found.Header.Revision, err
}

// Defragment gives back what etcd's file has of forgotten revisions. etcd answers nobody meanwhile.
func (s *Server) Defragment(ctx context.Context) error {
	return s.ask(ctx, "/v3/maintenance/defragment", map[string]any{}, nil)
}

// Stored returns how many bytes etcd's file has, and how many of them are in use.
func (s *Server) Stored(ctx context.Context) (size, used int64, err error) {
	var found struct {
		Size int64 `json:"dbSize,string"`
		Used int64 `json:"dbSizeInUse,string"`
	}
	err = s.ask(ctx, "/v3/maintenance/status", map[string]any{}, &found)
	return found.Size, found.Used, err
}

// ask etcd by its gateway for JSON.
func (s *Server) ask(ctx context.Context, path string, in map[string]any, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.etcd+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask etcd for %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask etcd for %s: %s: %s", path, resp.Status, body)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("read etcd's answer to %s: %w", path, err)
	}
	return nil
}
