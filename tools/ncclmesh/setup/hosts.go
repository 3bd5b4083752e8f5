package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/library"
)

// silence is how long a host may take for its steps: a slow line carries the library first.
const silence = 5 * time.Minute

// A Host is one that was looked at, and waits for what to do.
type Host struct {
	State
	Name string // as the user wrote it, or as the host calls itself where that is this node
	call *fleet.Call
}

// Hosts looks at all hosts at once. The fleet carries this program there; where that does not run, as on another processor, the
// one that is installed is asked. The caller closes all hosts, also where there is an error.
func Hosts(ctx context.Context, f *fleet.Fleet, hosts []string, r Request) ([]*Host, error) {
	all := make([]*Host, len(hosts))
	request := fleet.Request{Do: Do, With: r, Silence: silence}
	for i, name := range hosts {
		all[i] = &Host{Name: name, call: f.Start(ctx, name, request)}
	}
	err := fleet.Each(all, func(_ int, h *Host) error {
		err := h.call.Next(&h.State)
		if errors.Is(err, fleet.ErrNoAgent) && f.Push != "" {
			h.call.Close()
			installed := *f
			installed.Push = ""
			h.call = installed.Start(ctx, h.Name, request)
			if h.call.Next(&h.State) == nil {
				err = nil
			}
		}
		if err != nil {
			return err
		}
		if h.Name == fleet.Here {
			h.Name = h.Hostname
		}
		return nil
	})
	return all, err
}

// Close ends the agent. What it does is given up.
func (h *Host) Close() { h.call.Close() }

// Todo returns the steps that the agent can do.
func (h *Host) Todo() []Step {
	return slices.DeleteFunc(h.Steps(), func(st Step) bool { return st.ByHand })
}

// Check says why a host's steps cannot be done by this program; own is the plugin's library here, "" if there is none.
func (h *Host) Check(own string) error {
	if !slices.ContainsFunc(h.Todo(), func(st Step) bool { return st.Kind == CopyLibrary }) {
		return nil
	}
	switch {
	case h.Machine != runtime.GOARCH:
		return fmt.Errorf("%s: its processor is %s, and the library here is for %s: install the packages there", h.Name, h.Machine, runtime.GOARCH)
	case own == "":
		return fmt.Errorf("%s: there is no %s here to copy: unpack it beside this command, or install the package", h.Name, library.Name)
	}
	if needs, err := library.Needs(own); err == nil && h.LibC != "" && library.Older(h.LibC, needs) {
		return fmt.Errorf("%s: its C library is glibc %s, and %s needs %s: use a newer system there (Ubuntu 22.04, Debian 12, RHEL 9), or a container with one", h.Name, h.LibC, library.Name, needs)
	}
	return nil
}

// Apply has all hosts do their steps; own is the plugin's library here, which is sent to those that have none.
func Apply(hosts []*Host, own string) error {
	return fleet.Each(hosts, func(_ int, h *Host) error {
		todo := h.Todo()
		if len(todo) == 0 {
			return h.call.Say(Word{End: true})
		}
		if slices.ContainsFunc(todo, func(st Step) bool { return st.Kind == CopyLibrary }) {
			if err := h.send(own); err != nil {
				return err
			}
		}
		if err := h.call.Say(Word{Steps: todo}); err != nil {
			return err
		}
		var d Done
		return h.call.Next(&d)
	})
}

const partSize = 1 << 20 // of a line's 4 MiB, in base64

// send sends the library.
func (h *Host) send(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	part := make([]byte, partSize)
	for {
		n, err := io.ReadFull(f, part)
		if n > 0 {
			if err := h.call.Say(Word{Part: part[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}
