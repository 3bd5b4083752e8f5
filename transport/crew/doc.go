// Package crew does work that blocks, on a few threads of its own. Go gives a thread
// to every call that blocks and keeps it for ever, and the C library an arena of
// memory to every thread: hundreds of set-ups at once would leave both behind. The
// threads of a crew end when there is nothing to do.
package crew
