package ncclnet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/fault"
)

func TestNews(t *testing.T) {
	type answer struct{ IsNew, GoingOn bool }
	var f failure
	start := time.Unix(1000, 0)
	var got []answer
	for _, call := range []struct {
		text  string
		after time.Duration
	}{
		{"peer lost", 0},
		{"peer lost", time.Second},
		{"another", time.Second},
		{"another", goesOn},
		{"another", goesOn + 1},
		{"another", 2 * goesOn},
		{"peer lost", 3 * goesOn},
	} {
		isNew, goingOn := f.news(call.text, start.Add(call.after))
		got = append(got, answer{isNew, goingOn})
	}
	want := []answer{{true, false}, {false, false}, {true, false}, {false, false}, {false, true}, {false, false}, {true, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
}

// Connections to one peer that fail alike are one line of the log, until one is set up.
func TestSetUpsFailAlike(t *testing.T) {
	n := newTestNet(t)
	ctx := n.init()
	connect := func(want Result) {
		t.Helper()
		_, wire, r := n.Listen(ctx, 0)
		n.ok("listen", r)
		if _, r := n.Connect(ctx, 0, &wire); r != want {
			t.Errorf("connect: %v, want %v", r, want)
		}
	}
	n.logged()
	refused := fmt.Errorf("node-b: %w", fault.ErrPeer)
	for _, err := range []error{refused, refused, refused, nil, refused} {
		if n.f.refuse["connect"] = err; err == nil {
			connect(ncclSuccess)
		} else {
			connect(ncclRemoteError)
		}
	}
	line := "2 NET/Mesh : connect: node-b: remote error (ncclRemoteError)"
	if diff := cmp.Diff([]string{line, line}, strings.Split(n.logged(), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
