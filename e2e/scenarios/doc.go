// SPDX-License-Identifier: Apache-2.0

// Package scenarios holds the end-to-end tests: what a user does with Sealane on a real Karmada with real
// members. They share one lab, which TestMain boots and removes, and run in the order of the files.
package scenarios
