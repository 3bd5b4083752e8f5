package launch

import "time"

// Do is the name by which an agent is asked.
const Do = "run"

// An Order is what a host is to run.
type Order struct {
	Command   []string `json:"command"`
	Directory string   `json:"directory,omitempty"` // none: where the agent is, with ssh the user's home
	Processes int      `json:"processes"`
	Local     bool     `json:"local,omitempty"` // the host is the one that the command runs on, and is not reached over ssh
	Setting
}

// A Setting says how processes on a host use the plugin.
type Setting struct {
	Library  string   `json:"library,omitempty"` // the plugin there; none: it is looked for
	NoPlugin bool     `json:"noPlugin,omitempty"`
	Env      []string `json:"env,omitempty"`    // NAME=value, which hold over all others
	Anyway   bool     `json:"anyway,omitempty"` // also where NCCL would not use the plugin
}

// A Word is what an agent is told after its order: first to start, then signals.
type Word struct {
	Start  *Start `json:"start,omitempty"`
	Signal int    `json:"signal,omitempty"`
}

// A Start says with which variables each process starts.
type Start struct {
	Env [][]string `json:"env"` // of each, NAME=value
}

// A Report is one thing that an agent says; none of them is a sign of life.
type Report struct {
	Ready *Ready `json:"ready,omitempty"`
	Line  *Line  `json:"line,omitempty"`
	Exit  *Exit  `json:"exit,omitempty"`
}

// Ready is what a host has.
type Ready struct {
	Address string   `json:"address"` // at which ssh reached it, or else the other nodes can; its name where neither is known
	Port    int      `json:"port"`    // of TCP, that nobody has
	Env     []string `json:"env"`     // of each process, beside those that tell them apart
	Against []string `json:"against"` // what in the environment there works against the plugin
}

// A Line is what a process has written, without its end.
type Line struct {
	Process int    `json:"process"`
	Error   bool   `json:"error,omitempty"` // on standard error
	Text    []byte `json:"text"`            // which need not be a text
}

// An Exit is the end of a process.
type Exit struct {
	Process int `json:"process"`
	Status  int `json:"status"` // as a shell has it: 128 and the signal's number for one that a signal ended
}

// A host that says nothing for that long counts as lost. Agents give a sign of life far more often.
const (
	silence = 2 * time.Minute
	beat    = 10 * time.Second
)
