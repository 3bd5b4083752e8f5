package comm

import (
	"context"
	"log/slog"
	"strings"

	"ncclmesh/logtext"
	"ncclmesh/printable"
)

// maxLine is the length of a log line, in bytes.
const maxLine = 2000

// logHandler writes log records as lines of text.
type logHandler struct {
	write func(level slog.Level, text string)
	level slog.Leveler
	attrs logtext.Attrs
}

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.write != nil && l >= h.level.Level()
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	for text := range strings.SplitSeq(strings.TrimRight(h.attrs.Text(r), "\n"), "\n") {
		h.write(r.Level, printable.Line(text, maxLine))
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
