// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// TestConnectionsShowWhatIsMeasured: by the gateways where they can be asked, else by what the broker knows, unless
// that is of the past.
func TestConnectionsShowWhatIsMeasured(t *testing.T) {
	known := v1alpha1.MemberConnection{Cluster: "c1", Status: v1alpha1.ConnectionConnected,
		Measured: &v1alpha1.Measurements{RTTMicroseconds: 15_000, LossPercent: 2,
			Traffic: &v1alpha1.Traffic{ReceivedBytesPerSecond: 5_000_000, SentBytesPerSecond: 20_000}}}
	lost := func(change func(*v1alpha1.MemberConnection)) func(*fleet) {
		return func(f *fleet) {
			f.members = []fleetMember{lostMember()}
			c := known
			if change != nil {
				change(&c)
			}
			f.members[0].Status.Connections = []v1alpha1.MemberConnection{c}
		}
	}
	for name, c := range map[string]struct {
		change func(*fleet)
		// the cells RTT-AVG, LOSS, RTT-MIN/MAX/DEV, RECEIVED and SENT
		want string
	}{
		"a gateway": {func(f *fleet) {
			f.members = f.members[:1]
			f.members[0].gateways[0].Status.Connections[0].Traffic = &v1alpha1.Traffic{ReceivedBytesPerSecond: 1_234_567,
				SentBytesPerSecond: 987}
			f.members[0].Status.Connections = []v1alpha1.MemberConnection{known}
		}, "1.23ms 0% 0.40/5.68/0.09ms 1.2MB/s 987B/s"},
		"a gateway that tells no traffic":  {func(f *fleet) { f.members = f.members[:1] }, "1.23ms 0% 0.40/5.68/0.09ms - -"},
		"a gateway that is not heard of":   {func(f *fleet) { f.members = f.members[1:2] }, "- - - - -"},
		"a member that cannot be asked":    {lost(nil), "~15ms ~2% - ~5MB/s ~20kB/s"},
		"one that is not heard of":         {lost(func(c *v1alpha1.MemberConnection) { c.Status = "Unknown" }), "- - - - -"},
		"one that is not connected":        {lost(func(c *v1alpha1.MemberConnection) { c.Status = "Error" }), "- - - - -"},
		"one whose agents measure nothing": {lost(func(c *v1alpha1.MemberConnection) { c.Measured = nil }), "- - - - -"},
		"one without traffic": {lost(func(c *v1alpha1.MemberConnection) {
			c.Measured = &v1alpha1.Measurements{RTTMicroseconds: 1000, Traffic: &v1alpha1.Traffic{}}
		}), "~1ms ~0% - ~0B/s ~0B/s"},
		"while no controller runs": {func(f *fleet) {
			lost(nil)(f)
			f.leaderSeen = f.now.Add(-time.Hour)
		}, "- - - - -"},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoAndLost()
			c.change(f)
			rows := connectionRows(f)
			if len(rows) != 1 {
				t.Fatalf("rows %+v", rows)
			}
			cells := rows[0].cells()
			var got []string
			for _, i := range []int{7, 8, 12, 13, 14} {
				if cells[i] == "" {
					cells[i] = "-"
				}
				got = append(got, cells[i])
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
	f := twoAndLost()
	lost(nil)(f)
	var out bytes.Buffer
	if err := write(&out, outputJSON, connectionTable(f)); err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(out.Bytes(), &document); err != nil || !strings.Contains(out.String(), `"coarse"`) ||
		!strings.Contains(out.String(), `"sentBytesPerSecond": 20000`) {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestRatesHaveTwoDigits(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0B/s", 7: "7B/s", 999: "999B/s", 1000: "1kB/s", 1550: "1.6kB/s",
		999_999: "1000kB/s", 12_345_678: "12MB/s", 1_000_000_000_000: "1TB/s", 9e18: "9000000TB/s"} {
		if got := perSecond(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}
