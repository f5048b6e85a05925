// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// finding is an error that a person can act on: what was expected, what was found, what to do.
type finding struct {
	expected, found, remedy string
}

func (f *finding) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "expected %s\n  found: %s\n  to do: %s", f.expected, indent(f.found), indent(f.remedy))
	return b.String()
}

// indent lines up the further lines of a text with its first.
func indent(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n         ") }

// outOfTime says what to do about an error that is only that the time was up.
func outOfTime(err error, timeout string) error {
	var said *finding
	if errors.As(err, &said) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &finding{
		expected: "to be answered in time, and to be done within --timeout=" + timeout,
		found:    err.Error(),
		remedy:   "run it again, with a longer --timeout if that is what it takes",
	}
}
