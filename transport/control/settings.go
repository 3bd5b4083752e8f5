package control

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/sock"
)

// SettingsError says that two processes of one job differ in settings that must be the same on all its ranks.
type SettingsError struct {
	Local, Peer string // what is on the two sides: "node a", and beside another process of it "this process on node a"
	Differences []handshake.Difference
}

func (e *SettingsError) Error() string {
	return describe(e.Local, e.Peer, e.Differences) + ". All ranks of a job must have the same, or NCCL waits for ever: set one value everywhere, or unset it everywhere"
}

// describe names the settings in which two sides differ, and the values of both.
func describe(local, peer string, differences []handshake.Difference) string {
	var list []string
	for _, d := range differences {
		list = append(list, fmt.Sprintf("%s is %s on %s and %s on %s", d.Name, value(d.Ours), local, value(d.Theirs), peer))
	}
	return strings.Join(list, "; ")
}

// value puts the value of a setting into words.
func value(v string) string {
	if v == "" {
		return "not set"
	}
	return v
}

// agree compares the settings of a peer at the other end of a connection, at netdev if it is a neighbour, with those of this
// process. Differences with which both can work are logged, each once. The error is a *SettingsError.
func (e *Endpoint) agree(peer *Peer, netdev string, c sock.Conn) error {
	if netdev != "" { // its job may be another
		return nil
	}
	differences := handshake.Differences(e.settings(), peer.Settings)
	local, remote := e.sides(peer, c)
	var fatal []handshake.Difference
	for _, d := range differences {
		switch {
		case d.Rule == handshake.RuleSame:
			fatal = append(fatal, d)
		case e.firstDifference(d):
			e.log.Warn(describe(local, remote, []handshake.Difference{d}) + ". Each node goes by its own; it is meant to be the same on all")
		}
	}
	if len(fatal) == 0 {
		return nil
	}
	return &SettingsError{local, remote, fatal}
}

// sides names this side and a peer at the other end of a connection, so that people can tell one from the other.
func (e *Endpoint) sides(peer *Peer, c sock.Conn) (local, remote string) {
	switch {
	case peer.Hostname != e.cfg.Hostname:
		return "node " + e.cfg.Hostname, "node " + peer.Hostname
	case peer.Node == e.cfg.Node:
		return "this process on node " + e.cfg.Hostname, "another process there"
	}
	return fmt.Sprintf("node %s (%v)", e.cfg.Hostname, addrOf(c.Local()).Addr()), fmt.Sprintf("node %s (%v)", peer.Hostname, addrOf(c.Remote()).Addr())
}

// firstDifference reports whether a difference has not been seen before, with whatever peer.
func (e *Endpoint) firstDifference(d handshake.Difference) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.settled, d) || len(e.settled) >= handshake.MaxSettings {
		return false
	}
	e.settled = append(e.settled, d)
	return true
}

// settings is what a peer is told that a handle has led to.
func (e *Endpoint) settings() []handshake.Setting {
	if e.cfg.Settings == nil {
		return nil
	}
	return e.cfg.Settings()
}

// settingsFor is what a peer is told; a neighbour, whose job may be another, nothing.
func (e *Endpoint) settingsFor(netdev string) []handshake.Setting {
	if netdev != "" {
		return nil
	}
	return e.settings()
}
