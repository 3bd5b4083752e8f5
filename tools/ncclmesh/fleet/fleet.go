package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"ncclmesh/printable"
)

// DefaultSSH leads to a host without asking anything of a person.
const DefaultSSH = "ssh -o BatchMode=yes"

const (
	defaultHello   = 20 * time.Second // which ssh may need through jump hosts
	defaultSilence = 30 * time.Second
	pushing        = 3 * time.Minute // of a slow line
)

// Fleet says how hosts are reached. The zero value uses DefaultSSH. Its methods may be
// called from any goroutine; it is not to be changed meanwhile.
type Fleet struct {
	// SSH is a command, in words; the host and what is to run there come after them. None: DefaultSSH.
	SSH []string
	// Dial leads to a host instead of a command, where it is there: to an agent that has been started. It may block.
	Dial func(ctx context.Context, host string) (io.ReadWriteCloser, error)
	// Push is the file of a program that is copied there into a private directory, run
	// instead, and removed; none when empty. It must be one for the hosts' machine.
	Push string
	// Here is the file of the program that serves for the host Here, without SSH; this one.
	Here string
	// Env is the environment of commands, as os.Environ; nil is this process's.
	Env []string
	// Hello is how long a host may take to say hello; 20 s, and 3 minutes with Push.
	Hello time.Duration
}

// Here is the host that this process runs on: nothing leads there.
const Here = "."

// Words makes Fleet.SSH of what a person has written: words between spaces.
func Words(command string) ([]string, error) {
	words := strings.Fields(command)
	if len(words) == 0 && command != "" {
		return nil, fmt.Errorf("the command that runs a program on a host, %q, is empty; want one such as %q", command, DefaultSSH)
	}
	return words, nil
}

// Check says what is wrong with the names of hosts, before any is asked.
func Check(hosts []string) error {
	for i, h := range hosts {
		switch {
		case h == "" || strings.Contains(h, " ") || printable.Line(h, len(h)) != h:
			return fmt.Errorf("host %q: want a name that ssh knows, as node-b or user@10.0.0.2", h)
		case h[0] == '-':
			return fmt.Errorf("host %q: a name that begins with - would be an option to ssh", h)
		case slices.Contains(hosts[:i], h):
			return fmt.Errorf("host %s is named twice", h)
		}
	}
	return nil
}

// command is what leads to a host's agent.
func (f *Fleet) command(host string) []string {
	if host == Here {
		program := f.Here
		if program == "" {
			program, _ = os.Executable() // its absence is the error of the start
		}
		return []string{program, "agent"}
	}
	ssh := f.SSH
	if len(ssh) == 0 {
		ssh = strings.Fields(DefaultSSH)
	}
	if f.Push != "" {
		return append(slices.Clone(ssh), host, "sh")
	}
	return append(slices.Clone(ssh), host, "ncclmesh", "agent")
}

// Request is what hosts are asked.
type Request struct {
	Do      string        // the handler
	With    any           // its argument, as JSON; nil: none
	Silence time.Duration // the longest wait for one answer; 30 s
	Limit   int           // of the bytes of one host's answers; 64 MiB
	Log     io.Writer     // gets what the host writes on standard error, while it is asked; nil: only an error tells the last of it
}
