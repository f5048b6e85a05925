// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Why an API server did not do what it was asked, in one word for a table.
const (
	// unreachable: it does not answer.
	unreachable = "unreachable"
	// forbidden: it answers, and the user may not do that.
	forbidden = "forbidden"
	// unauthorized: it answers, and does not take the credentials.
	unauthorized = "unauthorized"
	// failed: it answers with another error.
	failed = "error"
)

// refusal is the word for an error of an API server.
func refusal(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsUnauthorized(err):
		return unauthorized
	case apierrors.ReasonForError(err) == "", apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err),
		apierrors.IsTimeout(err):
		return unreachable
	}
	return failed
}

// unanswered is the finding about an API server that did not do what it was asked: whether it cannot be reached, or
// answers and refuses.
func (a *api) unanswered(server, flag string, err error) *finding {
	where := fmt.Sprintf("%s at %s (context %q)", server, a.config.Host, a.context)
	switch refusal(err) {
	case forbidden:
		return &finding{
			expected: where + " to let this user do that", found: "it answers and refuses: " + err.Error(),
			remedy: "use credentials with the right, or have an administrator grant it; or name another context with " + flag,
		}
	case unauthorized:
		return &finding{
			expected: where + " to accept the credentials", found: "it answers and refuses: " + err.Error(),
			remedy: "renew the credentials in the kubeconfig, or name another context with " + flag,
		}
	case unreachable:
		return &finding{
			expected: where + " to answer", found: err.Error(),
			remedy: "see that it runs and can be reached from here, or name another context with " + flag,
		}
	}
	return &finding{
		expected: where + " to do that", found: "it answers with an error: " + err.Error(),
		remedy: "see its logs, or name another context with " + flag,
	}
}
