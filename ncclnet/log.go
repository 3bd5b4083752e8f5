package ncclnet

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"ncclmesh/logtext"
	"ncclmesh/printable"
)

// A Logger writes one line to NCCL's log. It is called from any goroutine.
type Logger func(level, subsystems int, file string, line int, text string)

// NCCL's log levels and subsystems (ncclDebugLogLevel, ncclDebugLogSubSys).
const (
	NCCL_LOG_WARN = 2
	NCCL_LOG_INFO = 3

	NCCL_INIT = 1
	NCCL_NET  = 16
)

const (
	logPrefix = "NET/Mesh : "
	// maxLogLine is the maximum length of a line in bytes, without the prefix: NCCL formats it into a buffer of 1024
	// bytes, which also holds NCCL's own prefix, and drops the rest.
	maxLogLine = 800
)

// logHandler writes slog records to NCCL's log. It writes debug and trace records at NCCL's level INFO, because
// released NCCL libraries are compiled without TRACE.
type logHandler struct {
	logger Logger
	level  slog.Leveler
	attrs  logtext.Attrs
}

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.logger != nil && l >= h.level.Level()
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	level := NCCL_LOG_INFO
	if r.Level >= slog.LevelWarn {
		level = NCCL_LOG_WARN
	}
	file, line := source(r.PC)
	for _, text := range logLines(h.attrs.Text(r)) {
		h.logger(level, NCCL_INIT|NCCL_NET, file, line, logPrefix+text)
	}
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = h.attrs.With(attrs)
	return &c
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.attrs = h.attrs.WithGroup(name)
	return &c
}

// logLines splits a message at its newlines and where a line gets too long. It replaces unprintable characters, because
// parts of the text may come from another node.
func logLines(message string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(message, "\n"), "\n") {
		line = printable.Line(line, len(line))
		for len(line) > maxLogLine {
			cut := maxLogLine
			for !utf8.RuneStart(line[cut]) {
				cut--
			}
			lines = append(lines, line[:cut])
			line = "... " + line[cut:]
		}
		lines = append(lines, line)
	}
	return lines
}

func source(pc uintptr) (file string, line int) {
	if pc == 0 {
		return "mesh", 0
	}
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return filepath.Base(frame.File), frame.Line
}
