package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/status"
)

const metricsLong = `Gives the counters of running jobs and relays to Prometheus, in its text format.

Without a flag it writes them once, to standard output. --textfile writes them once
to ncclmesh.prom in the directory of node_exporter's textfile collector, whole or
not at all: run it from a timer. --listen serves them at /metrics until a signal.
Which processes it sees is as with ncclmesh status; other users' jobs need root.

The jobs serve nothing themselves and do nothing for it. The labels device and port
are those of node_exporter's infiniband collector; for a path over TCP the device is
the interface.`

const metricsExample = `  ncclmesh metrics --textfile /var/lib/prometheus/node-exporter
  ncclmesh metrics --listen 127.0.0.1:9464`

// textfileName is the file that --textfile writes.
const textfileName = "ncclmesh.prom"

type metricsFlags struct{ listen, textfile string }

func metricsCommand(sys *system) *cobra.Command {
	var f metricsFlags
	c := &cobra.Command{
		Use:     "metrics",
		Short:   "Give the counters of running jobs to Prometheus",
		Long:    metricsLong,
		Example: metricsExample,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runMetrics(sys, f) },
	}
	c.Flags().StringVar(&f.listen, "listen", "", "serve them over HTTP at `ADDR`, as 127.0.0.1:9464")
	c.Flags().StringVar(&f.textfile, "textfile", "", "write "+textfileName+" into `DIR`")
	c.MarkFlagsMutuallyExclusive("listen", "textfile")
	return c
}

func runMetrics(sys *system, f metricsFlags) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if f.listen != "" {
		if _, _, err := net.SplitHostPort(f.listen); err != nil {
			return fmt.Errorf("--listen %s: %w; want HOST:PORT, as 127.0.0.1:9464", f.listen, err)
		}
		return (&exporter{find: windows(sys)}).serve(ctx, sys, f.listen)
	}
	text, troubles, err := status.Exposition(ctx, windows(sys))
	if err != nil {
		return failure{err}
	}
	for _, t := range troubles {
		fmt.Fprintf(sys.stderr, "ncclmesh: %v\n", t)
	}
	if f.textfile == "" {
		_, err = sys.stdout.Write(text)
	} else {
		err = toTextfile(f.textfile, text)
	}
	if err != nil {
		return failure{err}
	}
	return nil
}

// toTextfile puts the file that others read into the place of the last one, at once.
func toTextfile(dir string, text []byte) error {
	return renameio.WriteFile(filepath.Join(dir, textfileName), text, 0o644, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o644))
}

// exporter answers scrapes, one at a time.
type exporter struct {
	find func() ([]string, error)
	mu   sync.Mutex
}

// ServeHTTP answers a scrape.
func (m *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, _, err := status.Exposition(r.Context(), m.find)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // who has gone needs none
}

// serve answers scrapes until the context ends.
func (m *exporter) serve(ctx context.Context, sys *system, addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return failure{fmt.Errorf("--listen %s: %w", addr, err)}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m)
	s := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 1 << 16}
	fmt.Fprintf(sys.stderr, "ncclmesh: metrics at http://%v/metrics\n", ln.Addr())
	over := make(chan error, 1)
	go func() { over <- s.Serve(ln) }()
	select {
	case err := <-over:
		return failure{err}
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := s.Shutdown(late); err != nil {
		return failure{errors.Join(err, s.Close())}
	}
	return nil
}
