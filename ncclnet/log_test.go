package ncclnet

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ncclnet/config"
)

type logLine struct {
	Level, Subsystems int
	File              string
	Text              string
}

func captured(level slog.Level) (*slog.Logger, *[]logLine) {
	lines := new([]logLine)
	logger := func(level, subsystems int, file string, line int, text string) {
		if line == 0 {
			file += " without a line"
		}
		*lines = append(*lines, logLine{level, subsystems, file, text})
	}
	return slog.New(&logHandler{logger: logger, level: level}), lines
}

func TestLogHandler(t *testing.T) {
	log, lines := captured(slog.LevelDebug)
	log.Info("port", "device", "rocep1s0f0:1", "mtu", 4096, "speed", "200 Gb/s")
	log.Warn("lane down")
	log.Error("broken", "wait", 2*time.Second)
	log.Debug("detail", slog.Group("peer", "node", "b"), slog.Attr{})
	log.Log(context.Background(), config.LevelTrace, "too much")
	log.With("conn", 3).WithGroup("lane").With("index", 1).Info("up", "mtu", 1024)
	log.Info("two\nlines\n")
	log.Info("from a peer: \x1b[31m%s%n \u009b2J \u202egnp")
	want := []logLine{
		{3, 17, "log_test.go", `NET/Mesh : port device=rocep1s0f0:1 mtu=4096 speed="200 Gb/s"`},
		{2, 17, "log_test.go", "NET/Mesh : lane down"},
		{2, 17, "log_test.go", "NET/Mesh : broken wait=2s"},
		{3, 17, "log_test.go", "NET/Mesh : detail peer.node=b"},
		{3, 17, "log_test.go", "NET/Mesh : up conn=3 lane.index=1 lane.mtu=1024"},
		{3, 17, "log_test.go", "NET/Mesh : two"},
		{3, 17, "log_test.go", "NET/Mesh : lines"},
		{3, 17, "log_test.go", "NET/Mesh : from a peer: ?[31m%s%n ?2J ?gnp"},
	}
	if diff := cmp.Diff(want, *lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLogWithoutLogger(t *testing.T) {
	log := slog.New(&logHandler{level: slog.LevelInfo})
	if log.Enabled(context.Background(), slog.LevelError) {
		t.Error("enabled with nowhere to write")
	}
	log.Error("nothing")
}

func TestLongLinesAreSplit(t *testing.T) {
	long := strings.Repeat("grüße ", 500)
	lines := logLines(long)
	var b strings.Builder
	for i, line := range lines {
		if len(line) > maxLogLine {
			t.Errorf("line %d has %d bytes", i, len(line))
		}
		if !utf8.ValidString(line) {
			t.Errorf("line %d is cut within a letter", i)
		}
		if i > 0 {
			line = strings.TrimPrefix(line, "... ")
		}
		b.WriteString(line)
	}
	if b.String() != long {
		t.Error("the lines do not make the message")
	}
}

func FuzzLogLines(f *testing.F) {
	f.Add("a\nb")
	f.Add("\x1b[2J\u009b2J\u202e\u2028")
	f.Add(strings.Repeat("\xff", 3000))
	f.Fuzz(func(t *testing.T, s string) {
		for _, line := range logLines(s) {
			if len(line) > maxLogLine || strings.ContainsFunc(line, unicode.IsControl) || strings.ContainsAny(line, "\u2028\u202e") {
				t.Errorf("line %q", line)
			}
		}
	})
}
