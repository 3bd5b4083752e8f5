package comm

import (
	"bytes"
	"context"
	"log/slog"
	"strings"

	"ncclmesh/printable"
)

// maxLine is the length of a log line, in bytes.
const maxLine = 2000

// logHandler writes log records as lines of text.
type logHandler struct {
	write  func(level slog.Level, text string)
	level  slog.Leveler
	attrs  []slog.Attr
	groups []string
}

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.write != nil && l >= h.level.Level()
}

// Handle writes a line for the record: the message and then key=value for each attribute.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	var b bytes.Buffer
	if len(h.attrs) > 0 || r.NumAttrs() > 0 {
		var text slog.Handler = slog.NewTextHandler(&b, &slog.HandlerOptions{Level: h.level, ReplaceAttr: onlyAttributes})
		text = text.WithAttrs(h.attrs)
		for _, g := range h.groups {
			text = text.WithGroup(g)
		}
		if err := text.Handle(ctx, r); err != nil {
			return err
		}
	}
	line := r.Message
	if attrs := strings.TrimSpace(b.String()); attrs != "" {
		line += " " + attrs
	}
	for text := range strings.SplitSeq(line, "\n") {
		h.write(r.Level, printable.Line(text, maxLine))
	}
	return nil
}

// onlyAttributes drops what Handle writes itself.
func onlyAttributes(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(c.attrs[:len(c.attrs):len(c.attrs)], attrs...)
	return &c
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.groups = append(c.groups[:len(c.groups):len(c.groups)], name)
	return &c
}
