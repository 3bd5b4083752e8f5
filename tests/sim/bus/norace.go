//go:build !race

package bus

// Reproduces says that one seed gives one history also where goroutines of one instant meet in the product. The race
// detector prevents that.
const Reproduces = true
