package fleet

import (
	"errors"
	"fmt"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/printable"
)

// What can be wrong with a host. errors.Is tells which; an agent's own error is none of them.
var (
	ErrUnreachable = errors.New("cannot be reached") // the command that leads there failed
	ErrNoAgent     = errors.New("has no agent")      // ncclmesh is not installed there, or too old to have one
	ErrSilent      = errors.New("does not answer")
	ErrVersion     = errors.New("has another version")
	ErrGarbled     = errors.New("sent an answer that cannot be read")
	ErrLimit       = errors.New("sent too long an answer")
	ErrEnded       = errors.New("ended without an answer") // in the middle of an answer
)

// HostError is what went wrong at a host, in one line.
type HostError struct {
	Host string
	Err  error
}

func (e *HostError) Error() string {
	if e.Host == Here {
		return "this node: " + e.Err.Error()
	}
	return e.Host + ": " + e.Err.Error()
}
func (e *HostError) Unwrap() error { return e.Err }

// AgentError is what an agent has ended with: its handler's error, in its words.
type AgentError struct{ Text string }

func (e *AgentError) Error() string { return e.Text }

// Check says that a host speaks another protocol with the nodes of its mesh than this one.
func (h Hello) Check() error {
	if h.Protocol == handshake.Version {
		return nil
	}
	return fmt.Errorf("%w: build %s there speaks protocol %d, this one, build %s, %d; install the same on both, or give --push",
		ErrVersion, h.Build, h.Protocol, handshake.Build(), handshake.Version)
}

// clip makes one line of at most 300 bytes of what a program has printed: its last words,
// as those tell most.
func clip(text []byte) string {
	const most = 300
	var kept []string
	n := 0
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := len(all) - 1; i >= 0; i-- {
		line := strings.TrimSpace(printable.Line(all[i], len(all[i])))
		if line == "" {
			continue
		}
		if n += len(line) + 2; n > most && kept != nil {
			break
		}
		kept = append([]string{line}, kept...)
	}
	return printable.Line(strings.Join(kept, "; "), most)
}
