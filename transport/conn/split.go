package conn

import "ncclmesh/transport/lane"

// share is what the splitter knows of a lane.
type share struct {
	weight  float64 // bytes the lane carries in a unit of time, relative to its siblings
	backlog int64   // bytes posted on it and not yet delivered
}

// split cuts size bytes into parts over lanes so that, with the work already
// queued, all lanes finish together; parts[i] receives the bytes of lane i. A
// message below threshold stays whole on the lane that would deliver it first.
// Cuts fall on multiples of lane.PartAlign from the message's start. It returns the
// number of lanes used; an empty message uses one lane with no byte, reported
// by which.
//
// Shares of weight 0 get nothing; at least one must have more.
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
	parts[which] += left // what rounding left over
	return n, which
}

// level fills lanes to a common finishing time: those whose backlog alone lasts longer
// than that are left out, and the time computed again. It returns the time and those.
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
