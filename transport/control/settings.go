package control

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/sock"
)

// SettingsError reports that two processes of one job differ in settings that must be equal on all ranks.
type SettingsError struct {
	Local, Peer string // names of the two sides: "node a", or "this process on node a" if both are on one node
	Differences []handshake.Difference
}

func (e *SettingsError) Error() string {
	return describe(e.Local, e.Peer, e.Differences) + ". All ranks of a job must have the same, or NCCL waits for ever: set one value everywhere, or unset it everywhere"
}

// describe returns a text with the settings in which two sides differ, and both values of each.
func describe(local, peer string, differences []handshake.Difference) string {
	var list []string
	for _, d := range differences {
		list = append(list, fmt.Sprintf("%s is %s on %s and %s on %s", d.Name, value(d.Ours), local, value(d.Theirs), peer))
	}
	return strings.Join(list, "; ")
}

// value returns the value of a setting as text.
func value(v string) string {
	if v == "" {
		return "not set"
	}
	return v
}

// agree compares the settings of a peer with those of this process. netdev is the interface of a neighbour, whose
// settings are not compared. Differences that both sides can work with are logged, each once. The error is a
// *SettingsError.
func (e *Endpoint) agree(peer *Peer, netdev string, c sock.Conn) error {
	if netdev != "" { // a neighbour may belong to another job
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

// sides returns names of this side and of a peer at the other end of a connection that differ from each other.
func (e *Endpoint) sides(peer *Peer, c sock.Conn) (local, remote string) {
	switch {
	case peer.Hostname != e.cfg.Hostname:
		return "node " + e.cfg.Hostname, "node " + peer.Hostname
	case peer.Node == e.cfg.Node:
		return "this process on node " + e.cfg.Hostname, "another process there"
	}
	return fmt.Sprintf("node %s (%v)", e.cfg.Hostname, addrOf(c.Local()).Addr()), fmt.Sprintf("node %s (%v)", peer.Hostname, addrOf(c.Remote()).Addr())
}

// firstDifference reports whether a difference with any peer is the first of its kind.
func (e *Endpoint) firstDifference(d handshake.Difference) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.differences, d) || len(e.differences) >= handshake.MaxSettings {
		return false
	}
	e.differences = append(e.differences, d)
	return true
}

// settings returns the settings that are sent to a peer that has a handle.
func (e *Endpoint) settings() []handshake.Setting {
	if e.cfg.Settings == nil {
		return nil
	}
	return e.cfg.Settings()
}

// settingsFor returns the settings that are sent to a peer. A neighbour gets none, because it may belong to another
// job.
func (e *Endpoint) settingsFor(netdev string) []handshake.Setting {
	if netdev != "" {
		return nil
	}
	return e.settings()
}
