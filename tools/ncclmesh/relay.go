package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/transport"
	"ncclmesh/transport/relay"
)

// defaultDrain is what short jobs need to end, and long before a service manager loses
// its patience.
const defaultDrain = 30 * time.Second

const relayLong = `Relays the traffic of other nodes on a node that runs no rank.

Nodes that share no cable talk through the nodes between them. On a node that runs a
rank of the job, the plugin relays. On a node that runs none, this command does: it
needs neither root nor RDMA nor a GPU, only to be started on the node in the middle.
It reads the same environment variables as the plugin, stays when jobs end, and is
preferred to their processes.

SIGTERM or SIGINT ends it: it accepts no new circuits, and the present ones may end
by themselves for as long as --drain says. The rest is dropped then: its traffic
takes another path, if there is one, or waits NCCL_MESH_LANE_WAIT for this relay to
come back. A second signal drops it at once.

` + relayStatus

const relayExample = `  # on the node in the middle, with the key that all nodes share
  (umask 077; openssl rand -base64 24 >~/.ncclmesh-key)    # once, then copied
  ncclmesh relay --key-file ~/.ncclmesh-key

  # log what is relayed, circuit by circuit
  ncclmesh relay --verbose`

// relayFlags are those of ncclmesh relay.
type relayFlags struct {
	keyFile string
	drain   time.Duration
	verbose bool
}

func relayCommand(sys *system) *cobra.Command {
	var f relayFlags
	c := &cobra.Command{
		Use:     "relay",
		Short:   "Relay the traffic of other nodes on a node that runs no rank",
		Long:    relayLong,
		Example: relayExample,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runRelay(sys, f) },
	}
	c.Flags().StringVar(&f.keyFile, "key-file", "", "read NCCL_MESH_KEY from `FILE`, which only its owner may read")
	c.Flags().DurationVar(&f.drain, "drain", defaultDrain, "circuits may take this `TIME` to end after a signal; 0 is for ever")
	c.Flags().BoolVar(&f.verbose, "verbose", false, "log every circuit (as NCCL_MESH_DEBUG=debug)")
	return c
}

// carrier is a process's end of the mesh, as the command sees it.
type carrier interface {
	Relaying() relay.Stats
	RelayChanged() <-chan struct{}
	Retire() error
	Close() error
}

func runRelay(sys *system, f relayFlags) error {
	if f.drain < 0 {
		return fmt.Errorf("--drain %v: want 0 or more", f.drain)
	}
	c, err := settings(sys, f.keyFile)
	if err != nil {
		return err
	}
	level := c.Level
	if f.verbose {
		level = min(level, slog.LevelDebug)
	}
	log := newLog(sys, level)
	for _, line := range config.Unknown(sys.environ) {
		log.Warn(line)
	}
	log.Info(fmt.Sprintf("build %s, protocol %d", handshake.Build(), handshake.Version))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	c.Transport.Log = log
	t, err := transport.New(c.Transport)
	if err != nil {
		return failure{err}
	}
	s := &service{carrier: t, log: log, tell: func(state string) {
		if err := notify(sys, state); err != nil {
			log.Warn(err.Error())
		}
	}}
	return s.run(signals, f.drain)
}

// service is a relay from its start to its end.
//
//	ready ──signal──► drains ──nothing is carried──► over
//	                    └──time is up, signal──────►
type service struct {
	carrier
	log  *slog.Logger
	tell func(state string) // tells the service manager

	busy   bool        // something is carried, and that was said
	before relay.Stats // when nothing was
	since  time.Time
}

// run returns when the relay is over.
func (s *service) run(signals <-chan os.Signal, drain time.Duration) error {
	s.tell("READY=1")
	s.log.Info("ready to relay for other nodes")
	var late <-chan time.Time
	draining := false
	for over := false; !over; {
		select {
		case <-s.RelayChanged():
			s.report()
		case got := <-signals:
			if draining {
				s.log.Info(fmt.Sprintf("%v again: what is relayed is dropped", got))
				over = true
				break
			}
			draining = true
			s.tell("STOPPING=1")
			if err := s.Retire(); err != nil {
				s.log.Warn(err.Error())
			}
			if drain > 0 {
				late = time.After(drain)
			}
			if n := s.Relaying().Now; n > 0 {
				s.log.Info(fmt.Sprintf("%v: accepts no new circuits; waits for %s to end, %s", got, circuits(n), patience(drain)))
			}
		case <-late:
			s.log.Info(fmt.Sprintf("time is up: %s left after %v, and dropped; the traffic takes another path, if there is one", circuits(s.Relaying().Now), drain))
			over = true
		}
		over = over || draining && s.Relaying().Now == 0
	}
	err := s.Close()
	s.report()
	if err != nil {
		return failure{errors.Join(errors.New("the relay did not end in order"), err)}
	}
	s.log.Info("over")
	return nil
}

// report says when something begins to be carried, and when nothing is any more.
func (s *service) report() {
	now := s.Relaying()
	askers := strings.Join(now.Askers, ", ")
	if !s.busy && now.Carried > s.before.Carried {
		s.busy, s.since = true, time.Now()
		s.say(fmt.Sprintf("relays for %s", askers))
	}
	if s.busy && now.Now == 0 {
		bytes := now.Forth + now.Back - s.before.Forth - s.before.Back
		s.say(fmt.Sprintf("relays nothing any more: it was %s in %s in %v, for %s", size(bytes), circuits(int(now.Carried-s.before.Carried)),
			time.Since(s.since).Round(time.Millisecond), askers))
		s.busy = false
	}
	if !s.busy {
		s.before = now
	}
}

// say logs a state, which the service manager shows too.
func (s *service) say(state string) {
	s.log.Info(state)
	s.tell("STATUS=" + state)
}

func circuits(n int) string {
	if n == 1 {
		return "1 circuit"
	}
	return fmt.Sprintf("%d circuits", n)
}

func patience(drain time.Duration) string {
	if drain == 0 {
		return "however long that takes"
	}
	return fmt.Sprintf("for %v at most", drain)
}

// size is a number of bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
