//go:build !race

package stats

// set stores a word that other threads may load at the same time; each load returns a value that was
// stored (go.dev/ref/mem, "Implementation Restrictions for Programs Containing Data
// Races"). It is not atomic, because on x86 an atomic store is an exchange that waits for all earlier stores: ten of
// them took a fiftieth of the time of a message of 8 bytes.
func set(word *uint64, v uint64) { *word = v }
