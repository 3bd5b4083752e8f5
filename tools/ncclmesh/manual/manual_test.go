package manual_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/manual"
)

const page = `.TH "TOOL\-LOOK" "1" "Nov 2026" "ncclmesh" "ncclmesh"
.nh
.ad l
.SH NAME
tool\-look \- Look at a host
.SH SYNOPSIS
\fBtool look HOST... [flags]\fR
.SH DESCRIPTION
.PP
Looks, and doesn\(aqt touch.
\&.nf is no macro here, nor is \efB a font.
.SH OPTIONS
.TP
\fB\-\-expect\fR \fIFILE\fR
compare with FILE: see below
.TP
\fB\-h\fR, \fB\-\-help\fR
help for look
.TP
\fB\-n\fR, \fB\-\-times\fR \fIint\fR
how often (default 20)
.SH EXIT STATUS
.PP
The status is 0.
.SH ENVIRONMENT
.TP
\fBTOOL_IFNAME\fR
interfaces: \(ha excludes
.SH EXAMPLES
.nf
  tool look a   # it
.fi
.SH SEE ALSO
\fBtool\fR(1)
`

// A page has every word of the help, the arguments of flags among them, and nothing in it is a request to the formatter.
func TestWrite(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "A tool"}
	look := &cobra.Command{
		Use: "look HOST...", Short: "Look at a host", Example: "  tool look a   # it", Run: func(*cobra.Command, []string) {},
		Long: "Looks, and doesn't touch.\n.nf is no macro here, nor is \\fB a font.\n\nThe status is 0.",
	}
	look.Flags().String("expect", "", "compare with `FILE`: see below")
	look.Flags().IntP("times", "n", 20, "how often")
	look.Flags().Bool("secret", false, "hidden")
	if err := look.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(look, &cobra.Command{Use: "agent", Hidden: true, Run: look.Run})
	dir, date := t.TempDir(), time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	pages := map[string]manual.Page{"tool": {Status: "0"}}
	if err := manual.Write(dir, root, pages, date); err == nil {
		t.Error("a command whose statuses nobody explains has a page")
	}
	pages["tool look"] = manual.Page{Status: "The status is 0.", Environment: []manual.Variable{{Name: "TOOL_IFNAME", Meaning: "interfaces: ^ excludes"}}}
	if err := manual.Write(dir, root, pages, date); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "tool-look.1"))
	if diff := cmp.Diff(page, string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 2 {
		t.Errorf("%v, %v: want the pages of the two commands that users see", files, err)
	}
}
