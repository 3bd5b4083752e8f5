package facts

import "ncclmesh/handshake"

// Process is the one whose environment is judged: a job's, or the command's own.
type Process struct {
	PID      int                     `json:"pid,omitempty"` // 0: the command's own environment
	Env      Fact[map[string]string] `json:"env"`           // what NCCL, the loader and frameworks read, as the environment or else NCCL's files say; secrets left out
	Origin   map[string]string       `json:"origin"`        // the file that a variable of Env is set in; none where the environment sets it
	Serves   bool                    `json:"serves"`        // it is vLLM's or SGLang's, by its variables or command line
	Refused  []string                `json:"refused"`       // values that the plugin does not accept
	Unheard  []string                `json:"unheard"`       // names like its own that it does not know
	Locked   Fact[Limit]             `json:"locked"`        // RLIMIT_MEMLOCK
	Exempt   Fact[bool]              `json:"exempt"`        // from Locked: it has CAP_IPC_LOCK, and not in a user namespace alone
	Files    Fact[Limit]             `json:"files"`         // open files: the hard limit of RLIMIT_NOFILE, to which the plugin raises the soft one
	Shared   Fact[uint64]            `json:"shared"`        // bytes that are free in /dev/shm
	Compared []handshake.Setting     `json:"compared"`      // settings that are meant to be the same on all nodes
	Key      string                  `json:"key,omitempty"` // equal keys of two nodes have equal prints; "" without NCCL_MESH_KEY

	Mapped Fact[[]Library] `json:"mapped"` // NCCL and its network plugins, in a job
	Plugin Fact[Library]   `json:"plugin"` // what a job would load; Path "" where it would find none
	// Installed is the plugin that a job would find with NCCL_NET_PLUGIN=mesh; Path "" where there is none.
	Installed Fact[Library] `json:"installed"`
	Loaded    Fact[Loaded]  `json:"loaded"` // what came of loading Plugin, or Installed where there is none

	NCCL    Fact[[]Library] `json:"nccl"`    // libnccl that is loaded, or would be
	Conf    Fact[[]Line]    `json:"conf"`    // of NCCL's configuration files
	Preload Fact[[]Library] `json:"preload"` // LD_PRELOAD
	DebugTo Fact[Library]   `json:"debug"`   // the directory of NCCL_DEBUG_FILE; Path "" where none is named
}

// Limit is a resource limit, of memory in bytes.
type Limit struct {
	Most      uint64 `json:"most"`
	Unlimited bool   `json:"unlimited"`
}

// Library is a file on the node.
type Library struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	Ours    bool   `json:"ours,omitempty"`    // it is this plugin, by what its builder wrote into it
	Version string `json:"version,omitempty"` // of NCCL
}

// Loaded is a library that was loaded for a try.
type Loaded struct {
	Path string `json:"path"`
	Try  Try    `json:"try"`
}

// Line is a setting in a configuration file.
type Line struct {
	File  string `json:"file"`
	Line  int    `json:"line"` // from 1
	Name  string `json:"name"`
	Value string `json:"value"`
}
