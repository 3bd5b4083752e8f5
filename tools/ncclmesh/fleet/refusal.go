package fleet

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal is why a host cannot be asked, and what to do about it.
type Refusal struct {
	Err  error
	Next string // in the imperative
}

func (r *Refusal) Error() string { return r.Err.Error() + "; " + r.Next }
func (r *Refusal) Unwrap() error { return r.Err }

// known are words of ssh and of shells, with what to do about them. The first that fits counts: ssh says that a host key is wrong
// after it has said that it has changed.
var known = []struct{ words, next string }{
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", "find out why its host key changed, then run ssh-keygen -R %s"},
	{"has changed and you have requested strict checking", "find out why its host key changed, then run ssh-keygen -R %s"},
	{"Host key verification failed", "accept its host key once: ssh %s true"},
	{"Could not resolve hostname", "correct the name, or add %s to ~/.ssh/config or /etc/hosts"},
	{"Permission denied (", "copy your key there: ssh-copy-id %s"},
	{"Too many authentication failures", "name the key for %s in ~/.ssh/config (IdentityFile, IdentitiesOnly yes)"},
	{"Connection timed out", "check that %s is on, and has this address"},
	{"No route to host", "check that %s is on, and has this address"},
	{"Network is unreachable", "check that this node is on the network of %s"},
	{"Connection refused", "start sshd on %s"},
	{noDirectory, "name a directory there in TMPDIR (SetEnv in ~/.ssh/config), or install ncclmesh on %s"},
	{wrongMachine, "install the package for its processor on %s"},
	{"No space left on device", "free some space in the directory for temporary files on %s"},
}

// byHand is what to try where nothing else is known: the command stands in the error.
const byHand = "run that command by hand"

// next says what to do about what a host's command has said, or what to try.
func next(host, words string) string {
	for _, k := range known {
		if strings.Contains(words, k.words) {
			return fmt.Sprintf(k.next, host)
		}
	}
	return byHand
}

// explain says why a host has not said hello, from how the command that leads there ended.
func (f *Fleet) explain(host string, status int, said []byte) error {
	words := clip(said)
	refused := func(next string, kind error, format string, args ...any) error {
		return &Refusal{fmt.Errorf("%w: "+format, append([]any{kind}, args...)...), next}
	}
	away := status == 127 || status == 126 // as shells have it
	switch {
	case strings.Contains(words, `unknown command "agent"`):
		return refused("update it, or give --push", ErrNoAgent, "ncclmesh is installed there, but older than this one")
	case away && f.Push != "":
		then := next(host, words)
		if then == byHand {
			then = "install ncclmesh on " + host
		}
		return refused(then, ErrNoAgent, "this program was copied there, and does not run (%s)", words)
	case away:
		return refused("install it on "+host+", or give --push", ErrNoAgent, "ncclmesh does not run there (%s)", words)
	case words == "":
		return refused(next(host, ""), ErrUnreachable, "%q ended with status %d and no message", strings.Join(f.command(host), " "), status)
	}
	return refused(next(host, words), ErrUnreachable, "%s (status %d of %q)", words, status, strings.Join(f.command(host), " "))
}

// notStarted says why the command that leads to a host has not started.
func (f *Fleet) notStarted(host string, err error) error {
	if host == Here {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	then := "correct it: --ssh, or NCCLMESH_SSH, names the command that runs a program on a host"
	if len(f.SSH) == 0 {
		then = "install ssh's client (apt install openssh-client), or name another command that runs a program on a host in --ssh or NCCLMESH_SSH"
	}
	return &Refusal{fmt.Errorf("%w: %w", ErrUnreachable, err), then}
}

// Reason returns what to do about a host, "" where nothing is known, and its error without the host's name.
func Reason(err error) (next string, why error) {
	var at *HostError
	if errors.As(err, &at) {
		err = at.Err
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r.Next, r.Err
	}
	return "", err
}
