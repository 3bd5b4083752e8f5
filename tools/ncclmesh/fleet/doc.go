// Package fleet asks many hosts at once: it starts `ncclmesh agent` on each, over ssh or
// whatever else runs a command there, and talks JSON lines with it.
//
//	asker                                  agent
//	ssh HOST ncclmesh agent   ─────────►   started
//	                          ◄─────────   {"hello": {"schema", "build", "protocol"}}
//	{"do": name, "with": …}   ─────────►   the handler of that name
//	                          ◄─────────   {"answer": …}    any number
//	{"say": …}                ─────────►   any number, for handlers that wait for word of the others
//	                          ◄─────────   {"end": {}}      or {"end": {"error": …}}
//
// The asker side is a [Fleet]: [Fleet.Start] begins a [Call] to one host and does not
// block. The agent side is [Serve], with a [Handler] for each name. An agent ends when its
// input does, so that none outlives its asker.
//
// What goes wrong at a host is one [HostError] in one line, which names it; the others go on.
// What a host sends is believed no further than its size: lines and calls have limits.
package fleet
