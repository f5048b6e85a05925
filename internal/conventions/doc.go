// SPDX-License-Identifier: Apache-2.0

// Package conventions holds the tests of what every file of the source tree keeps to: the import directions and the
// line length of .golangci.yml. They need nothing but Go, so `make test` always runs them; golangci-lint reads the same
// settings.
package conventions
