package ncclnet

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"

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
	attrs  string // rendered, each with a leading space
	group  string // with a trailing dot
}

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.logger != nil && l >= h.level.Level()
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	level := NCCL_LOG_INFO
	if r.Level >= slog.LevelWarn {
		level = NCCL_LOG_WARN
	}
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&b, h.group, a)
		return true
	})
	file, line := source(r.PC)
	for _, text := range logLines(b.String()) {
		h.logger(level, NCCL_INIT|NCCL_NET, file, line, logPrefix+text)
	}
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		appendAttr(&b, h.group, a)
	}
	c := *h
	c.attrs += b.String()
	return &c
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.group += name + "."
	return &c
}

// appendAttr writes " key=value", and quotes a value that is not one word.
func appendAttr(b *strings.Builder, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, member := range v.Group() {
			appendAttr(b, group, member)
		}
		return
	}
	if a.Key == "" {
		return
	}
	text := v.String()
	if text == "" || strings.ContainsAny(text, " \"=\n\t") {
		text = strconv.Quote(text)
	}
	fmt.Fprintf(b, " %s%s=%s", group, a.Key, text)
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
