package rate

import "slices"

// Shares of what link and PCIe allow, in percent, below which a cable is not healthy. On a GB10, whose functions have 126 Gb/s of PCIe, people
// reach 112 Gb/s one way, and 190 both ways together.
const (
	Stuck    = 20 // one way: the adapter is stuck, 13 Gb/s were seen
	Low      = 75 // one way
	BothWays = 75 // both ways at once, of twice what is allowed one way
)

// crowd is the share of a node's processors that other programs have to take before they are to blame for what was measured.
const crowd = 0.6

// Busy returns the number of the end whose processors other programs took, so that the rates say nothing of the cable; -1 if there is none.
// crowded is the share that they took at each end.
func Busy(crowded [2]float64) int {
	return slices.IndexFunc(crowded[:], func(share float64) bool { return share >= crowd })
}

// Below reports whether a rate is less than a share, in percent, of what is allowed, in the same unit. Where nothing is known to be allowed, no
// rate is.
func Below(rate, allowed, share float64) bool { return rate < allowed*share/100 }
