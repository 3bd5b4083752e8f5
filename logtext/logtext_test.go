package logtext

import (
	"log/slog"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	lane := Attrs{}.With([]slog.Attr{slog.Int("conn", 3)}).WithGroup("lane").WithGroup("").With([]slog.Attr{slog.Int("index", 1)})
	for _, tt := range []struct {
		attrs Attrs
		own   []slog.Attr
		want  string
	}{
		{Attrs{}, nil, "up"},
		{Attrs{}, []slog.Attr{slog.String("speed", "200 Gb/s"), slog.String("name", "")}, `up speed="200 Gb/s" name=""`},
		{Attrs{}, []slog.Attr{slog.Group("peer", "node", "b"), {}}, "up peer.node=b"},
		{lane, []slog.Attr{slog.Int("mtu", 1024)}, "up conn=3 lane.index=1 lane.mtu=1024"},
	} {
		r := slog.NewRecord(time.Time{}, slog.LevelInfo, "up", 0)
		r.AddAttrs(tt.own...)
		if got := tt.attrs.Text(r); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
