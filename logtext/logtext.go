package logtext

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// Attrs are the attributes and the group that all records of a handler have. The zero value has none.
type Attrs struct {
	text  string // the rendered attributes, each with a leading space
	group string // with a trailing dot
}

// With returns the attributes with more of them, as a slog.Handler's WithAttrs needs it.
func (a Attrs) With(attrs []slog.Attr) Attrs {
	var b strings.Builder
	for _, attr := range attrs {
		appendAttr(&b, a.group, attr)
	}
	a.text += b.String()
	return a
}

// WithGroup returns the attributes with a group for those that follow, as a slog.Handler's WithGroup needs it.
func (a Attrs) WithGroup(name string) Attrs {
	if name != "" {
		a.group += name + "."
	}
	return a
}

// Text returns the text of a record. It may have newlines and unprintable characters, if the message has.
func (a Attrs) Text(r slog.Record) string {
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(a.text)
	r.Attrs(func(attr slog.Attr) bool {
		appendAttr(&b, a.group, attr)
		return true
	})
	return b.String()
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
