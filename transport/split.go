package transport

// share is what the splitter knows of a lane.
type share struct {
	weight  float64 // bytes the lane carries in a unit of time, relative to its siblings
	backlog int64   // bytes posted on it and not yet delivered
}

// split cuts size bytes into parts over lanes so that, with the work already
// queued, all lanes finish together; parts[i] receives the bytes of lane i. A
// message below threshold stays whole on the lane that would deliver it first.
// Cuts fall on multiples of partAlign from the message's start. It returns the
// number of lanes used; an empty message uses one lane with no byte, reported
// by which.
//
// lanes with weight 0 get nothing; at least one must have more.
func split(size int, lanes []share, threshold int, parts []int) (n, which int) {
	which = -1
	var best float64
	for i := range lanes {
		parts[i] = 0
		if lanes[i].weight <= 0 {
			continue
		}
		t := float64(lanes[i].backlog+int64(size)) / lanes[i].weight
		if which < 0 || t < best {
			which, best = i, t
		}
	}
	if size < threshold || len(lanes) == 1 {
		parts[which] = size
		return 1, which
	}

	// Fill the lanes to a common finishing time: those whose backlog alone
	// lasts longer than that are left out, and the time computed again.
	var finish float64
	var skip uint64
	for {
		work, rate := float64(size), 0.0
		for i := range lanes {
			if lanes[i].weight > 0 && skip&(1<<i) == 0 {
				work += float64(lanes[i].backlog)
				rate += lanes[i].weight
			}
		}
		finish = work / rate
		dropped := false
		for i := range lanes {
			if lanes[i].weight > 0 && skip&(1<<i) == 0 && finish*lanes[i].weight <= float64(lanes[i].backlog) {
				skip |= 1 << i
				dropped = true
			}
		}
		if !dropped {
			break
		}
	}
	left := size
	for i := range lanes {
		if lanes[i].weight <= 0 || skip&(1<<i) != 0 {
			continue
		}
		b := int(finish*lanes[i].weight) - int(lanes[i].backlog)
		b = min((b+partAlign/2)&^(partAlign-1), left)
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
