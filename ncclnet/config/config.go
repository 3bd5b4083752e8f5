package config

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"ncclmesh/ncclnet/gpudirect"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
	"ncclmesh/tuner"
)

// A Config is the configuration in the environment.
type Config struct {
	Transport transport.Options
	Tuning    Tuning
	Level     slog.Level

	GDR        gpudirect.Setting
	TCPLeftOut bool // Transport has no lanes over TCP because of GDR
}

// A Tuning is the part of the configuration that determines the tuner's answers. It must be equal on all ranks.
type Tuning struct {
	Off      bool
	Topology tuner.Topology
}

// LevelTrace is below slog's lowest level. It is for events on the data path.
const LevelTrace = slog.LevelDebug - 4

// Default returns the configuration for an empty environment. Fields with 0 or -1 take the transport's default.
func Default() Config {
	return Config{
		Level: slog.LevelInfo,
		Transport: transport.Options{
			GIDs:            topology.GIDPolicy{Index: -1, Family: 4, RoCE: 2},
			TrafficClass:    -1,
			ServiceLevel:    -1,
			Timeout:         -1,
			RetryCount:      -1,
			RNRRetry:        -1,
			RelaxedOrdering: 2,
		},
	}
}

// A Setting is the value in effect for one variable.
type Setting struct {
	Variable
	Value  string // as it was written, or the default; a secret is not shown
	Origin string // the variable that was read, which may be an older name; "" for the default
	Err    *Error // nil if the value is accepted
}

// An Error is a value that is not accepted.
type Error struct {
	Name, Value string // as in Setting
	Err         error  // tells which values are accepted
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s=%q: %v; correct it or unset it", e.Name, e.Value, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Read reads every variable. An empty value counts as unset. If values are not accepted, the error joins an [Error] for
// each of them.
func Read(getenv func(string) string) (Config, error) {
	c, settings := read(getenv)
	var errs []error
	for _, s := range settings {
		if s.Err != nil {
			errs = append(errs, s.Err)
		}
	}
	if len(errs) > 0 {
		return Default(), errors.Join(errs...)
	}
	return c, nil
}

// Settings returns the value in effect for every variable, in the order of the table.
func Settings(getenv func(string) string) []Setting {
	_, settings := read(getenv)
	return settings
}

// secret is the variable whose value is never shown.
const secret = "NCCL_MESH_KEY"

func read(getenv func(string) string) (Config, []Setting) {
	c := Default()
	settings := make([]Setting, len(variables))
	for i, v := range variables {
		s := &settings[i]
		*s = Setting{Variable: v, Value: v.Default}
		for _, name := range []string{v.Name, oldNames[v.Name]} {
			value := strings.TrimSpace(getenv(name))
			if value == "" {
				continue
			}
			s.Value, s.Origin = value, name
			if name == secret {
				s.Value = "(set)"
			}
			err := errQuoted
			if name == secret || !quoted(value) {
				err = v.set(&c, value)
			}
			if err != nil {
				s.Err = &Error{name, s.Value, err}
			}
			break
		}
	}
	c.combine(settings)
	return c, settings
}

// combine changes what depends on more than one variable, and sets the error of one that contradicts another. Lanes over TCP cannot use
// GPU memory: where the user demands that, there are none.
func (c *Config) combine(settings []Setting) {
	if c.GDR != gpudirect.On {
		return
	}
	switch c.Transport.Transport {
	case transport.TransportTCP:
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == "NCCL_MESH_GDR" })
		settings[i].Err = &Error{settings[i].Origin, settings[i].Value, errGDRWithTCP}
	case "", transport.TransportAuto:
		c.Transport.Transport, c.TCPLeftOut = transport.TransportRDMA, true
	}
}

var errGDRWithTCP = errors.New("NCCL_MESH_TRANSPORT is tcp, and lanes over TCP cannot use GPU memory: that takes rdma or auto")

var errQuoted = errors.New("the quotes are part of the value: a shell takes them off, docker --env-file, Kubernetes and systemd may not; write it without")

// quoted reports whether a value is in quotes.
func quoted(value string) bool {
	n := len(value)
	return n > 1 && value[0] == value[n-1] && strings.ContainsRune("\"'`", rune(value[0]))
}

// OfCommunicator returns the options of the transport. If the environment sets no traffic class or service level, they
// contain trafficClass, which is the communicator's or -1. NCCL uses this number for both fields.
func (c Config) OfCommunicator(trafficClass int) transport.Options {
	o := c.Transport
	if trafficClass < 0 {
		return o
	}
	if o.TrafficClass < 0 {
		o.TrafficClass = min(trafficClass, maxTrafficClass)
	}
	if o.ServiceLevel < 0 {
		o.ServiceLevel = min(trafficClass, maxServiceLevel)
	}
	return o
}
