package doctor

import "ncclmesh/tools/ncclmesh/doctor/facts"

// Files that a job of a few nodes has open at once: connections of NCCL, the plugin and the framework, libraries and devices. With
// fewer than the smaller number it does not come up.
const (
	usualFiles = 1024
	leastFiles = 256
)

func filesLow(n *facts.Node, v *verdict) {
	limit, ok := n.Process.Files.Get()
	switch {
	case !ok:
		v.unknown(on(n), n.Process.Files.Because())
	case limit.Unlimited || limit.Most >= usualFiles:
	default:
		severity := Warn
		if limit.Most < leastFiles {
			severity = Fail
		}
		v.add(severity, on(n), "raise the hard limit: start a container with --ulimit nofile=65536; elsewhere set nofile in /etc/security/limits.d, or LimitNOFILE in a unit, and log in again",
			"a job may have %d files open, connections among them", limit.Most)
	}
}

// What NCCL puts into /dev/shm: files of each rank, of some 10 MB at least. With less than that a job does not start. Docker's
// default is 64 MiB, of which other programs may have taken some.
const (
	usualShared = 48 << 20
	leastShared = 10 << 20
)

func shmSmall(n *facts.Node, v *verdict) {
	free, ok := n.Process.Shared.Get()
	switch {
	case !ok:
		v.unknown(on(n), n.Process.Shared.Because())
	case free < usualShared:
		severity := Warn
		if free < leastShared {
			severity = Fail
		}
		v.add(severity, on(n), "start a container with --ipc host or --shm-size 1g; elsewhere delete what fills /dev/shm, or run mount -o remount,size=50% /dev/shm",
			"%s are free in /dev/shm, where NCCL puts 10 to 33 MB for each rank", size(free))
	}
}
