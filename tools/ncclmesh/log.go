package main

import (
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// newLog is the log for people: lines of text, without the time where the journal has it.
func newLog(sys *system, level slog.Level) *slog.Logger {
	timeless := journal(sys)
	return slog.New(slog.NewTextHandler(sys.stderr, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if timeless && len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// journal reports whether standard error is the journal. The variable that says so is
// inherited also by those whose standard error is another.
func journal(sys *system) bool {
	f, ok := sys.stderr.(*os.File)
	if !ok {
		return false
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	return sys.getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
