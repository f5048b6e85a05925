// SPDX-License-Identifier: Apache-2.0

// Package reportpace has how often a cluster tells of exports that change all the time. Agents keep to it, and so does
// whoever plays them in a measurement.
package reportpace

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// Quick is how many reports in a row do not wait for each other.
	Quick = 10
	// Every is the time between two reports after that.
	Every = time.Second
)

// Exports returns what the reports of one Bundle take from that tell of nothing but exports.
//
// Each of them is a write for Karmada, of some hundred exports in a large fleet, and one for every importer of what
// has changed. A rollout is told of as it happens. Pods that are replaced or fail all the time are told of each
// second: what came in between is of no use to anybody, and would have other clusters' changes wait for Karmada.
func Exports() *rate.Limiter { return rate.NewLimiter(rate.Every(Every), Quick) }
