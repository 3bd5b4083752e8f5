// Package threads is a thread pool for calls that block. Go starts a thread for every blocking call and keeps it for ever,
// and the C library keeps a memory arena for every thread. Hundreds of concurrent set-ups would leave both behind. A
// [Pool] limits the number of threads, and its idle threads end.
package threads
