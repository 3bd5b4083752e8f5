// Package onesided moves bytes between windows: memory into which every peer of a process may write at any time, and
// from which it may read. A program puts bytes, and tells the peer by a signal, which changes a word of a window when
// the bytes of all earlier puts are there.
//
//	Space    this process's windows and peers
//	Window   memory of this process
//	Peer     a process, reached by two connections of package conn, one each way; or this process itself
//	Op       an operation of a peer: put, signal, get, flush
//
// # How it works
//
// Puts are those of package conn: over queue pairs the device writes into the window, over sockets and circuits the
// receiver places the bytes. Signals and requests of gets are messages of 64 bytes ([message]), which conn sends such
// that they arrive after the bytes of earlier puts on all lanes. Each side keeps receives for them outstanding. A signal
// that was sent as a message before is sent as a number, and then one write has it and the bytes of its put: see
// [conn.Sender.BriefSignal].
//
// Progress of the receiving process acts on messages in their order. It is the only one that changes words of signals in
// its process, so that peers that come by different adapters may share a word, which atomic operations of adapters
// could not.
//
// A get is a request to the peer, which puts the bytes back and then says so.
//
// # Threads
//
// All methods may be called from any goroutine. Nothing moves between calls of [Space.Progress], except what adapters
// do by themselves; so a process with peers calls it all the time. Progress and the operations never wait and allocate
// nothing. Space.mu, held by calls that register or close, is locked before a peer's mutex, and that before the mutexes
// of its connections, for which the data path only tries.
package onesided
