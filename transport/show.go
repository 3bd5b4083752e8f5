package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/window"
)

// openPage makes the page of counters. If other processes cannot read the page, it logs a warning and the job
// continues.
func (t *Transport) openPage() {
	who := stats.Process{
		PID: t.opts.Machine.pid(), Started: time.Now(), Protocol: handshake.Version, Kind: stats.Job, ID: t.process,
		Command: t.opts.Machine.command(), Build: handshake.Build(), Node: t.host,
	}
	if t.opts.Dedicated {
		who.Kind = stats.Relaying
	}
	if makes := t.opts.Machine.Page; makes != nil {
		t.page = makes(who)
		return
	}
	if t.opts.Status != StatusOff {
		page, err := stats.Open(who)
		if err == nil {
			t.page = page
			return
		}
		t.opts.Log.Warn(notShown(err))
	}
	t.page = stats.Private(who)
}

// openWindow lets other processes read the page.
func (t *Transport) openWindow() {
	if t.page.File() == nil {
		return
	}
	w, err := window.Open(t.opts.Status, t.process, t.page.File(), t.caught)
	if err != nil {
		t.log.Warn(notShown(err))
		return
	}
	t.window = w
}

// closePage closes the page, and the access of other processes.
func (t *Transport) closePage() error {
	var errs []error
	if t.window != nil {
		errs = append(errs, t.window.Close())
	}
	if t.page != nil {
		errs = append(errs, t.page.Close())
	}
	return errors.Join(errs...)
}

func notShown(err error) string {
	return fmt.Sprintf("ncclmesh status will not see this process; nothing else is affected (NCCL_MESH_STATUS): %v", err)
}

// showPorts writes the current state of the ports to the page.
func (t *Transport) showPorts() {
	var ports []stats.Port
	for _, p := range t.ports {
		now := p.Now()
		ports = append(ports, stats.Port{
			Number: int(p.Index()), Device: now.Device, Num: int(now.Num), Netdev: now.Netdev, Cage: now.Cage(), Connector: now.PhysPort,
			Up: now.Active && (now.Netdev == "" || now.Carrier), RDMA: p.Kind() == lane.Verbs, State: now.State, LinkMbps: now.LinkMbps, PCIMbps: now.PCIMbps,
		})
	}
	t.page.SetPorts(ports)
}

// UsedBy records on the page which version of the plugin interface NCCL uses.
func (t *Transport) UsedBy(version int) { t.page.SetInterface(version) }

// A warningRecorder copies warnings to the page, and passes all records to its Handler.
type warningRecorder struct {
	slog.Handler
	page *stats.Page
}

func (h warningRecorder) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		var b strings.Builder
		b.WriteString(r.Message)
		r.Attrs(func(a slog.Attr) bool {
			fmt.Fprintf(&b, ", %s", a)
			return true
		})
		h.page.AddNotice(b.String())
	}
	return h.Handler.Handle(ctx, r)
}

func (h warningRecorder) WithAttrs(as []slog.Attr) slog.Handler {
	return warningRecorder{h.Handler.WithAttrs(as), h.page}
}
func (h warningRecorder) WithGroup(name string) slog.Handler {
	return warningRecorder{h.Handler.WithGroup(name), h.page}
}
