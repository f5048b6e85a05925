// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitContains waits until a field of an object, given as for JSONPath, contains all the words.
func WaitContains(t *testing.T, cluster, path string, object []string, words ...string) {
	t.Helper()
	Eventually(t, Patience, func(ctx context.Context) error {
		got, err := JSONPath(ctx, cluster, path, object...)
		for _, word := range words {
			if err == nil && !strings.Contains(got, word) {
				err = fmt.Errorf("%s of %v in %s: expected %q in %q", path, object, cluster, word, got)
			}
		}
		return err
	})
}

// Contains expects all the words in a text.
func Contains(t *testing.T, out string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("expected %q in\n%s", word, out)
		}
	}
}

// ConditionText is the JSONPath of a condition as "status/reason: message".
func ConditionText(kind string) string {
	c := fmt.Sprintf(`.status.conditions[?(@.type==%q)]`, kind)
	return fmt.Sprintf("{%[1]s.status}/{%[1]s.reason}: {%[1]s.message}", c)
}

const (
	// Patience is the deadline of a wait whose length is not what a test is about. It is far beyond what the slowest
	// step takes on an idle machine, since the tests must pass on a loaded one too, and Karmada's informers back off
	// after an outage.
	Patience = 4 * time.Minute
	// oneTry is how long one try within a wait may take: a connection that hangs must not use up the whole wait.
	oneTry = 20 * time.Second
)

// Update reads the named object in the namespace and writes it as changed by edit, again after a conflict.
func Update[T client.Object](s Namespace, cluster string, o T, edit func(T)) {
	s.Helper()
	a := s.API(cluster)
	Eventually(s.T, Patience, func(ctx context.Context) error {
		if err := a.Get(ctx, client.ObjectKey{Namespace: s.Name, Name: o.GetName()}, o); err != nil {
			return err
		}
		edit(o)
		return a.Update(ctx, o)
	})
}

// WaitFor reads the named object in the namespace until check accepts it.
func WaitFor[T client.Object](s Namespace, cluster string, o T, check func(T) error) {
	s.Helper()
	a := s.API(cluster)
	Eventually(s.T, Patience, func(ctx context.Context) error {
		if err := a.Get(ctx, client.ObjectKey{Namespace: s.Name, Name: o.GetName()}, o); err != nil {
			return fmt.Errorf("%s: %w", cluster, err)
		}
		if err := check(o); err != nil {
			return fmt.Errorf("%s: %s: %w", cluster, o.GetName(), err)
		}
		return nil
	})
}

// Eventually repeats check until it succeeds, and fails the test with its last error at the deadline.
func Eventually(t *testing.T, within time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := waitFor(ctx, check); err != nil {
		t.Fatalf("not within %s: %v", within, err)
	}
}

// waitFor repeats check until it succeeds, and returns its last error when the context ends.
func waitFor(ctx context.Context, check func(context.Context) error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not tried")
	for {
		attempt, end := context.WithTimeout(ctx, oneTry)
		err := check(attempt)
		end()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !cutOff(err) {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-tick.C:
		}
	}
}

// cutOff says that a check was not made, for the deadline was too near: what the one before it found says more.
func cutOff(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "would exceed context deadline")
}
