package doctor

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The elements of JUnit's format that those who read it know.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report as a suite with a test for each check: failures and warnings
// are failed tests, what is not known or was ignored is skipped.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{Name: "ncclmesh doctor", Time: fmt.Sprintf("%.3f", r.Seconds)}
	for _, id := range r.Checks {
		c := r.junitCase(id)
		suite.Tests++
		if c.Failure != nil {
			suite.Failures++
		} else if c.Skipped != nil {
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Report) junitCase(id string) junitCase {
	c := junitCase{Class: "ncclmesh.doctor", Name: id}
	var bad, open, out []string
	for _, f := range r.Findings {
		line := f.Where() + ": " + f.Evidence
		if f.Remedy != "" {
			line += "\n" + sentence(f.Remedy) + "."
		}
		switch {
		case f.Check != id:
		case f.Cause != "":
			open = append(open, line+"\nIt follows from "+f.Cause+".")
		case f.Ignored:
			open = append(open, line+"\nIt is ignored.")
		case f.Severity == Unknown:
			open = append(open, line)
		case f.Severity == Info:
			out = append(out, line)
		default:
			bad = append(bad, line)
		}
	}
	message := func(lines []string) *junitMessage {
		first, _, _ := strings.Cut(lines[0], "\n")
		return &junitMessage{first, strings.Join(lines, "\n")}
	}
	switch {
	case len(bad) > 0:
		c.Failure = message(bad)
	case len(open) > 0:
		c.Skipped = message(open)
	}
	c.Out = strings.Join(out, "\n")
	return c
}
