package setup

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/library"
	"ncclmesh/transport/topology"
)

// Do is the name by which an agent is asked.
const Do = "setup"

// Request is what an agent is asked first.
type Request struct {
	User bool `json:"user,omitempty"` // install for the user alone, below ~/.local, also where root could be had
}

// A State is what a host has.
type State struct {
	Hostname string   `json:"hostname"`
	Machine  string   `json:"machine"` // as Go names it
	Command  string   `json:"command"` // where a shell finds ncclmesh; "" if nowhere
	Build    string   `json:"build"`   // of that command, as it says
	Library  string   `json:"library"` // where NCCL or this project's command finds the plugin; "" if nowhere
	Prefix   string   `json:"prefix"`  // where the command and the library are installed
	Root     Root     `json:"root"`
	InPath   bool     `json:"inPath"` // whether a shell finds the command, or will find it when it is installed
	Off      []string `json:"off"`    // interfaces of RDMA ports that are switched off
	GPU      bool     `json:"gpu"`
	LibC     string   `json:"libC"` // version of the GNU C library; "" where that is not known, as on systems with another one
}

// Root is how a host does what needs root.
type Root string

// How that can be.
const (
	IsRoot  Root = "root"
	HasSudo Root = "sudo" // without a password
	NoRoot  Root = ""
)

// usual is where the command and the library are installed with root.
const usual = "/usr/local"

// look finds out what this host has.
func look(ctx context.Context, r Request, getenv func(string) string) (*State, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	s := &State{Hostname: name, Machine: runtime.GOARCH, Off: []string{}}
	switch {
	case os.Geteuid() == 0:
		s.Root = IsRoot
	case exec.CommandContext(ctx, "sudo", "-n", "true").Run() == nil:
		s.Root = HasSudo
	}
	if s.Prefix = usual; r.User || s.Root == NoRoot {
		s.Prefix = filepath.Join(getenv("HOME"), ".local")
	}
	path := filepath.SplitList(getenv("PATH"))
	s.Command, s.Build = s.command(ctx, path)
	s.InPath = slices.Contains(path, filepath.Dir(cmp.Or(s.Command, filepath.Join(s.Prefix, "bin/ncclmesh"))))
	for _, l := range library.Find(getenv) {
		if l.Err == nil && !s.unpacked(l.Path) {
			s.Library = l.Path
			break
		}
	}
	if out, err := exec.CommandContext(ctx, "getconf", "GNU_LIBC_VERSION").Output(); err == nil { // "glibc 2.36"
		_, s.LibC, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	}
	_, err = os.Stat("/dev/nvidiactl")
	s.GPU = err == nil
	found, err := topology.Discover(topology.Source{Sysfs: getenv("NCCL_MESH_SYSFS")})
	if err != nil {
		return nil, err
	}
	for _, p := range found.Ports {
		if i, err := net.InterfaceByName(p.Netdev); err == nil && i.Flags&net.FlagUp == 0 {
			s.Off = append(s.Off, p.Netdev)
		}
	}
	return s, nil
}

// unpacked reports whether a library lies with the program that runs, as in an unpacked tarball, and not with the command that a
// shell finds: that would not find it.
func (s *State) unpacked(file string) bool {
	self, err := os.Executable()
	if err != nil || filepath.Dir(self) == filepath.Dir(s.Command) {
		return false
	}
	dir := filepath.Dir(file)
	return dir == filepath.Dir(self) || dir == filepath.Join(filepath.Dir(self), "../lib")
}

// command returns where ncclmesh is in a path, or where it would be installed, and its build.
func (s *State) command(ctx context.Context, path []string) (file, build string) {
	for _, dir := range append(slices.Clip(path), filepath.Join(s.Prefix, "bin")) {
		path := filepath.Join(dir, "ncclmesh")
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		out, err := exec.CommandContext(ctx, path, "--version").Output()
		if err != nil {
			continue // for another machine
		}
		build, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "ncclmesh "), ",")
		return path, build
	}
	return "", ""
}

// A Step is one change of a host.
type Step struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"` // the file to write, or the interface
	Sudo   bool   `json:"sudo,omitempty"`
	ByHand bool   `json:"byHand,omitempty"` // the agent may not: a person has to
}

// Kind is what a step does.
type Kind string

// Kinds of steps.
const (
	CopyCommand Kind = "copy command"
	CopyLibrary Kind = "copy library"
	SwitchOn    Kind = "switch on"
)

// Steps returns what the host lacks, in the order in which it is done.
func (s *State) Steps() (all []Step) {
	sudo := s.Prefix == usual && s.Root == HasSudo
	if s.Command == "" {
		all = append(all, Step{Kind: CopyCommand, Target: filepath.Join(s.Prefix, "bin/ncclmesh"), Sudo: sudo})
	}
	if s.Library == "" {
		all = append(all, Step{Kind: CopyLibrary, Target: filepath.Join(s.Prefix, "lib", library.Name), Sudo: sudo})
	}
	for _, name := range s.Off {
		all = append(all, Step{Kind: SwitchOn, Target: name, Sudo: s.Root == HasSudo, ByHand: s.Root == NoRoot})
	}
	return all
}

// String is the step for people: what is done, or what a person has to do.
func (s Step) String() string {
	if s.ByHand {
		return fmt.Sprintf("cannot switch the interface %s on without root: run sudo ip link set %[1]s up there", s.Target)
	}
	what := map[Kind]string{
		CopyCommand: "copy the command to " + s.Target,
		CopyLibrary: "copy the library to " + s.Target,
		SwitchOn:    "switch the interface " + s.Target + " on, until the next boot",
	}[s.Kind]
	if s.Sudo {
		what += ", with sudo"
	}
	return what
}

// Summary is what the host has, for people.
func (s *State) Summary() string {
	have := []string{}
	if s.Command != "" {
		have = append(have, fmt.Sprintf("%s (%s)", s.Command, s.Build))
	}
	if s.Library != "" {
		have = append(have, s.Library)
	}
	if len(have) == 0 {
		return "has neither the command nor the library"
	}
	return "has " + strings.Join(have, " and ")
}
