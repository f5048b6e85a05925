// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/sealane-io/sealane/e2e/lab"
)

// TestBothServersAnswer: the two servers of names are compared on objects that both answer from.
func TestBothServersAnswer(t *testing.T) {
	root, err := lab.SourceRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	rows, memory, err := dnsBench(t.Context(), []int{2}, 1, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for of, load := range map[string]dnsLoad{"sealane-dns": row.Ours[0], "the stock plugin": row.Stock[0]} {
			if load.Rate <= 0 {
				t.Errorf("%s of %s: expected answers, found none", row.Kind, of)
			}
		}
	}
	if len(rows) != 2 || len(memory) != 1 || memory[0].Ours == 0 || memory[0].Stock == 0 {
		t.Errorf("expected rows of both kinds, and the memory of both servers, found %+v and %+v", rows, memory)
	}
}
