module ncclmesh

go 1.26.0

require (
	github.com/ebitengine/purego v0.11.3
	github.com/google/go-cmp v0.7.0
	github.com/vishvananda/netlink v1.3.1
	golang.org/x/sys v0.49.0
	golang.org/x/time v0.16.0
)

require github.com/vishvananda/netns v0.0.5 // indirect
