// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/xml"
	"fmt"
	"time"
)

// The elements of a JUnit report, as CI systems read it.
type (
	suites struct {
		XMLName  xml.Name `xml:"testsuites"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Errors   int      `xml:"errors,attr"`
		Time     string   `xml:"time,attr"`
		Suites   []*suite `xml:"testsuite"`
	}
	suite struct {
		Name      string     `xml:"name,attr"`
		Tests     int        `xml:"tests,attr"`
		Failures  int        `xml:"failures,attr"`
		Errors    int        `xml:"errors,attr"`
		Skipped   int        `xml:"skipped,attr"`
		Time      string     `xml:"time,attr"`
		Timestamp string     `xml:"timestamp,attr"`
		Cases     []testCase `xml:"testcase"`
		took      time.Duration
	}
	testCase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Time    string   `xml:"time,attr"`
		Failure *message `xml:"failure"`
		Skipped *message `xml:"skipped"`
	}
	message struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
	}
)

// JUnit is the report: a test suite for each pair of clusters, and a test case for each check.
func (m Matrix) JUnit(began time.Time, took time.Duration) ([]byte, error) {
	all := suites{Name: "sealane verify", Time: seconds(took)}
	byPair := map[string]*suite{}
	for i := range m.Checks {
		c := &m.Checks[i]
		pair := c.From.Cluster + "." + c.To.Cluster
		s := byPair[pair]
		if s == nil {
			s = &suite{Name: c.From.Cluster + " → " + c.To.Cluster, Timestamp: began.UTC().Format("2006-01-02T15:04:05")}
			byPair[pair] = s
			all.Suites = append(all.Suites, s)
		}
		test := testCase{Name: c.String(), Class: "sealane.verify." + pair, Time: seconds(c.Took)}
		switch c.Verdict {
		case OK:
		case Skipped:
			s.Skipped++
			test.Skipped = &message{Message: c.Reason}
		case Failed, Pending:
			s.Failures++
			all.Failures++
			test.Failure = &message{Message: c.Reason, Type: string(c.Target)}
		}
		s.Tests++
		all.Tests++
		s.took += c.Took
		s.Time = seconds(s.took)
		s.Cases = append(s.Cases, test)
	}
	report, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the JUnit report: %w", err)
	}
	return append([]byte(xml.Header), append(report, '\n')...), nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }
