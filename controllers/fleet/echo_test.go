// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// overdue asks an Echo every second and returns the seconds at which it said to send anew.
func overdue(e *Echo, c *clusterv1alpha1.Cluster, failed bool, from time.Time, seconds int) string {
	var at []string
	for i := range seconds {
		if sent, _ := e.Overdue(c, false, failed, from.Add(time.Duration(i)*time.Second)); sent {
			at = append(at, fmt.Sprint(i))
		}
	}
	return strings.Join(at, " ")
}

func TestWhatIsNotAnsweredIsSentAnew(t *testing.T) {
	turned := time.Unix(1e9, 0)
	long := turned.Add(time.Hour)
	c := clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(turned)}}
	down := c.DeepCopy()
	down.Status.Conditions[0].Status = metav1.ConditionFalse
	for name, x := range map[string]struct {
		cluster *clusterv1alpha1.Cluster
		failed  bool
		from    time.Time
		want    string
	}{
		"it has just turned ready":           {&c, false, turned, "5 10 15 20 25 32 40 50 100"},
		"Karmada could not apply it":         {&c, true, long, "5 10 15 20 25 32 40 50 63 79 99"},
		"nothing says that there is trouble": {&c, false, long, "30 60"},
		"it is not ready":                    {down, true, turned, ""},
		"it is gone":                         {nil, true, turned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := overdue(new(Echo), x.cluster, x.failed, x.from, 120); got != x.want {
				t.Errorf("sent anew at %q, want %q", got, x.want)
			}
		})
	}
	t.Run("trouble that stays costs one write a minute", func(t *testing.T) {
		e := new(Echo)
		overdue(e, &c, true, long, 3600)
		if got := strings.Fields(overdue(e, &c, true, long.Add(time.Hour), 600)); len(got) != 10 {
			t.Errorf("sent anew %d times in ten minutes", len(got))
		}
	})
	t.Run("how long it has waited", func(t *testing.T) {
		e := new(Echo)
		for _, x := range []struct {
			cluster  *clusterv1alpha1.Cluster
			answered bool
			at, want time.Duration
		}{{&c, false, 0, 0}, {&c, false, 12 * time.Second, 12 * time.Second}, {&c, false, 40 * time.Second, 40 * time.Second},
			{down, false, 41 * time.Second, 0}, {&c, false, 42 * time.Second, 0}, {&c, true, 50 * time.Second, 0}} {
			e.Overdue(x.cluster, x.answered, false, long.Add(x.at))
			if got := e.Waited(long.Add(x.at)); got != x.want {
				t.Errorf("after %v: %v, want %v", x.at, got, x.want)
			}
		}
	})
	t.Run("an answer starts it over", func(t *testing.T) {
		e := new(Echo)
		overdue(e, &c, true, long, 50)
		if sent, again := e.Overdue(&c, true, true, long.Add(50*time.Second)); sent || again != 0 {
			t.Errorf("%v, %v for what is answered", sent, again)
		}
		if sent, again := e.Overdue(&c, false, true, long.Add(51*time.Second)); sent || again != echoPatience {
			t.Errorf("%v, %v for what was just sent", sent, again)
		}
	})
}

// TestACall: what is answered is sent anew once, 30 to 60 s after its cluster came into sight, and then in its own
// period.
func TestACall(t *testing.T) {
	start := time.Unix(1e9, 0)
	c := clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	ready := func(status metav1.ConditionStatus) *clusterv1alpha1.Cluster {
		c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: status,
			LastTransitionTime: metav1.NewTime(start)}}
		return &c
	}
	// calls looks whenever it is told to, answers at once, and returns the seconds of the calls.
	calls := func(e *Echo, from, to time.Duration) []float64 {
		var at []float64
		for looks := 0; from < to; looks++ {
			if looks > 1000 {
				t.Fatalf("looked %d times", looks)
			}
			sent, again := e.Overdue(ready(metav1.ConditionTrue), true, false, start.Add(from))
			if sent {
				at = append(at, from.Seconds())
				e.Overdue(ready(metav1.ConditionTrue), false, false, start.Add(from))
				continue
			}
			if again == 0 {
				break
			}
			from += again
		}
		return at
	}
	firsts := map[float64]bool{}
	for i := range 100 {
		once, often := NewEcho(fmt.Sprint(i), 0), NewEcho(fmt.Sprint(i), 5*time.Minute)
		one, many := calls(&once, 0, time.Hour), calls(&often, 0, time.Hour)
		if len(one) != 1 || one[0] < 30 || one[0] > 60 || len(many) < 9 || len(many) > 16 || many[0] != one[0] {
			t.Fatalf("%d: called at %v, and about every 5 minutes at %v", i, one, many)
		}
		firsts[one[0]] = true
		once.Overdue(ready(metav1.ConditionFalse), true, false, start.Add(time.Hour))
		if again := calls(&once, time.Hour+time.Minute, 2*time.Hour); len(again) != 1 || again[0] < 3660+30 {
			t.Fatalf("%d: after its cluster was out of sight it was called at %v", i, again)
		}
	}
	if len(firsts) < 80 {
		t.Errorf("100 members were called at %d different times", len(firsts))
	}
	t.Run("is not made where a change was answered", func(t *testing.T) {
		for _, every := range []time.Duration{0, 5 * time.Minute} {
			e := NewEcho("c1", every)
			for second, answered := range []bool{true, false, true} {
				if sent, _ := e.Overdue(ready(metav1.ConditionTrue), answered, false,
					start.Add(time.Duration(second)*time.Second)); sent {
					t.Fatalf("every %s: called after %d s", every, second)
				}
			}
			switch at := calls(&e, 2*time.Second, 7*time.Minute); {
			case every == 0 && len(at) > 0, every > 0 && (len(at) == 0 || at[0] < every.Seconds()*3/4):
				t.Errorf("every %s: called at %v", every, at)
			}
		}
	})
	t.Run("that is not written is made again", func(t *testing.T) {
		for _, every := range []time.Duration{0, 5 * time.Minute} {
			e := NewEcho("c1", every)
			made := 0
			for at := start; at.Before(start.Add(3 * time.Minute)); at = at.Add(time.Second) {
				if sent, _ := e.Overdue(ready(metav1.ConditionTrue), true, false, at); sent {
					made++
				}
			}
			if made != callTries {
				t.Errorf("every %s: called %d times, expected %d", every, made, callTries)
			}
		}
	})
	t.Run("is given more time than a change", func(t *testing.T) {
		for name, want := range map[string]time.Duration{"change": changePatience, "call": firstPatience} {
			e, now := NewEcho("c1", 0), start.Add(time.Hour)
			if name == "call" {
				e.Overdue(ready(metav1.ConditionTrue), true, false, now)
				now = now.Add(time.Minute)
				if sent, _ := e.Overdue(ready(metav1.ConditionTrue), true, false, now); !sent {
					t.Fatal("not called")
				}
			}
			e.Overdue(ready(metav1.ConditionTrue), false, false, now)
			if late, again := e.Unanswered(now); late || again != want {
				t.Errorf("%s: %t, %v at once, expected patience for %v", name, late, again, want)
			}
			if late, again := e.Unanswered(now.Add(want)); !late || again != 0 {
				t.Errorf("%s: %t, %v after %v", name, late, again, want)
			}
			e.Overdue(ready(metav1.ConditionTrue), true, false, now.Add(want))
			if late, again := e.Unanswered(now.Add(want)); late || again != 0 {
				t.Errorf("%s: %t, %v after the answer", name, late, again)
			}
		}
	})
}
