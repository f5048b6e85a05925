// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

func TestPercentile(t *testing.T) {
	thirty := make([]int, 30)
	for i := range thirty {
		thirty[len(thirty)-1-i] = i + 1
	}
	for _, c := range []struct {
		name   string
		values []int
		p      float64
		want   int
	}{
		{"none", nil, 50, 0},
		{"one value is every percentile", []int{7}, 99, 7},
		{"the middle of three", []int{3, 1, 2}, 50, 2},
		{"half of thirty", thirty, 50, 15},
		{"thirty values have no rank above the last", thirty, 99, 30},
		{"the maximum", thirty, 100, 30},
		{"never below the first", thirty, 0, 1},
	} {
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestWritesPerChange(t *testing.T) {
	const before = `# TYPE apiserver_request_body_size_bytes histogram
apiserver_request_body_size_bytes_bucket{group="work.karmada.io",resource="works",verb="update",le="50000"} 4
apiserver_request_body_size_bytes_sum{group="work.karmada.io",resource="works",verb="update"} 1000
apiserver_request_body_size_bytes_count{group="work.karmada.io",resource="works",verb="update"} 4
apiserver_request_body_size_bytes_sum{group="",resource="services",verb="create"} 70
apiserver_request_body_size_bytes_count{group="",resource="services",verb="create"} 1
apiserver_request_body_size_bytes_sum{group="coordination.k8s.io",resource="leases",verb="update"} 5
apiserver_request_body_size_bytes_count{group="coordination.k8s.io",resource="leases",verb="update"} 5
`
	const after = `apiserver_request_body_size_bytes_sum{group="work.karmada.io",resource="works",verb="update"} 3000
apiserver_request_body_size_bytes_count{group="work.karmada.io",resource="works",verb="update"} 14
apiserver_request_body_size_bytes_sum{group="",resource="services",verb="create"} 70
apiserver_request_body_size_bytes_count{group="",resource="services",verb="create"} 1
apiserver_request_body_size_bytes_sum{group="discovery.k8s.io",resource="endpointslices",verb="update"} 5000
apiserver_request_body_size_bytes_count{group="discovery.k8s.io",resource="endpointslices",verb="update"} 10
apiserver_request_body_size_bytes_sum{group="coordination.k8s.io",resource="leases",verb="update"} 50
apiserver_request_body_size_bytes_count{group="coordination.k8s.io",resource="leases",verb="update"} 50
`
	old, err := parseWrites("c1", before)
	if err != nil {
		t.Fatal(err)
	}
	now, err := parseWrites("c1", after)
	if err != nil {
		t.Fatal(err)
	}
	want := []writes{
		{written{"c1", "endpointslices", "update"}, 1, 500},
		{written{"c1", "works", "update"}, 1, 200},
	}
	if got := writesPer(old, now, 10); !slices.Equal(got, want) {
		t.Errorf("writes %v, expected %v", got, want)
	}
}
