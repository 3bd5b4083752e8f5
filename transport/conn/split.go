package conn

import "ncclmesh/transport/lane"

// share is the splitter's view of a lane.
type share struct {
	weight  float64 // relative speed; 0 if the lane is not to be used
	backlog int64   // bytes posted on the lane and not yet delivered
}

// split cuts size bytes into parts such that all lanes, with their backlogs, finish at the same time. It
// stores the bytes for lane i in parts[i] and returns the number of lanes used. A message of fewer than
// threshold bytes is not cut: it goes to the lane that would deliver it first. Cuts are at multiples of
// lane.PartAlign from the start of the message. An empty message uses one lane with no bytes; which is its
// index.
//
// Lanes of weight 0 get nothing. At least one weight must be positive.
func split(size int, shares []share, threshold int, parts []int) (n, which int) {
	which = -1
	var best float64
	for i := range shares {
		parts[i] = 0
		if shares[i].weight <= 0 {
			continue
		}
		t := float64(shares[i].backlog+int64(size)) / shares[i].weight
		if which < 0 || t < best {
			which, best = i, t
		}
	}
	if size < threshold || len(shares) == 1 {
		parts[which] = size
		return 1, which
	}

	finish, skip := level(size, shares)
	left := size
	for i := range shares {
		if shares[i].weight <= 0 || skip&(1<<i) != 0 {
			continue
		}
		b := int(finish*shares[i].weight) - int(shares[i].backlog)
		b = min((b+lane.PartAlign/2)&^(lane.PartAlign-1), left)
		if b <= 0 {
			continue
		}
		parts[i] = b
		left -= b
		which = i
		n++
	}
	if n == 0 {
		n = 1
	}
	parts[which] += left // the remainder of rounding
	return n, which
}

// level returns the time at which all lanes finish size bytes and their backlogs, and a bit in skip for each
// lane whose backlog alone takes longer. Such a lane gets nothing, and the time is computed without it.
func level(size int, shares []share) (finish float64, skip uint64) {
	for {
		work, rate := float64(size), 0.0
		for i := range shares {
			if shares[i].weight > 0 && skip&(1<<i) == 0 {
				work += float64(shares[i].backlog)
				rate += shares[i].weight
			}
		}
		finish = work / rate
		dropped := false
		for i := range shares {
			if shares[i].weight > 0 && skip&(1<<i) == 0 && finish*shares[i].weight <= float64(shares[i].backlog) {
				skip |= 1 << i
				dropped = true
			}
		}
		if !dropped {
			return finish, skip
		}
	}
}
