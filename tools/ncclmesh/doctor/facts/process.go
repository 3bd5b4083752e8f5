package facts

// Process is the one whose environment is judged: a job's, or the command's own.
type Process struct {
	PID     int                     `json:"pid,omitempty"` // 0: the command's own environment
	Env     Fact[map[string]string] `json:"env"`           // what NCCL and the loader read; secrets left out
	Refused []string                `json:"refused"`       // values that the plugin does not accept
	Unheard []string                `json:"unheard"`       // names like its own that it does not know
	Locked  Fact[Limit]             `json:"locked"`        // RLIMIT_MEMLOCK
	Exempt  Fact[bool]              `json:"exempt"`        // from Locked: it has CAP_IPC_LOCK, and not in a user namespace alone

	Mapped Fact[[]Library] `json:"mapped"` // NCCL and its network plugins, in a job
	Plugin Fact[Library]   `json:"plugin"` // what a job would load; Path "" where it would find none
	// Installed is the plugin that a job would find with NCCL_NET_PLUGIN=mesh; Path "" where there is none.
	Installed Fact[Library] `json:"installed"`

	NCCL    Fact[[]Library] `json:"nccl"`    // libnccl that is loaded, or would be
	Conf    Fact[[]Line]    `json:"conf"`    // of NCCL's configuration files
	Preload Fact[[]Library] `json:"preload"` // LD_PRELOAD
	DebugTo Fact[Library]   `json:"debug"`   // the directory of NCCL_DEBUG_FILE; Path "" where none is named
}

// Limit is a resource limit in bytes.
type Limit struct {
	Bytes     uint64 `json:"bytes"`
	Unlimited bool   `json:"unlimited"`
}

// Library is a file on the node.
type Library struct {
	Path    string `json:"path"`
	Missing bool   `json:"missing,omitempty"`
	Ours    bool   `json:"ours,omitempty"`    // it is this plugin, by what its builder wrote into it
	Version string `json:"version,omitempty"` // of NCCL
}

// Line is a setting in a configuration file.
type Line struct {
	File  string `json:"file"`
	Line  int    `json:"line"` // from 1
	Name  string `json:"name"`
	Value string `json:"value"`
}
