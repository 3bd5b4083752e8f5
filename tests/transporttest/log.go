package transporttest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"

	"ncclmesh/transport"
)

// Log is a log that a test looks into.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// String returns all that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Count is how often s is in the log.
func (l *Log) Count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

// Takes makes a transport log here what has at least that level.
func (l *Log) Takes(level slog.Level) func(*transport.Options) {
	return func(o *transport.Options) {
		o.Log = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
	}
}
