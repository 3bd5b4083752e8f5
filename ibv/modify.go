package ibv

import (
	"fmt"
	"math/bits"
	"strings"
	"syscall"
)

// Modify sets the attributes in mask. What the error of a refused change says: the states from and to, the attributes that
// a reliable connection needs or cannot have there, and for an unreachable peer its GID.
func (q *QP) Modify(attr *QPAttr, mask uint32) error {
	if err := q.life.check(); err != nil {
		return err
	}
	c := q.pd.ctx
	errno := c.lib.driver.ModifyQP(q.info.Handle, attr, mask)
	q.mu.Lock()
	if mask&IBV_QP_PORT != 0 && errno == 0 {
		q.port = attr.PortNum
	}
	if mask&IBV_QP_STATE != 0 && errno == 0 {
		q.state = attr.QPState
	}
	port, from := q.port, q.state
	q.mu.Unlock()
	if errno == 0 {
		return nil
	}
	if mask&IBV_QP_PORT != 0 {
		port = attr.PortNum
	}
	if now, err := q.State(); err == nil {
		from = now
	}
	return newError("modify_qp", c.device.info.Name, port, errno, q.refusal(from, attr, mask, errno))
}

// refusal explains why a change from a state failed.
func (q *QP) refusal(from uint32, attr *QPAttr, mask uint32, errno syscall.Errno) string {
	to := from
	if mask&IBV_QP_STATE != 0 {
		to = attr.QPState
	}
	parts := []string{fmt.Sprintf("queue pair %#x from %s to %s", q.info.Num, stateName(from), stateName(to))}
	if errno == syscall.EINVAL && q.typ == IBV_QPT_RC {
		parts = append(parts, maskFaults(from, to, mask))
	}
	if mask&IBV_QP_AV != 0 {
		grh := attr.AHAttr.GRH
		switch errno {
		case syscall.ETIMEDOUT:
			parts = append(parts, fmt.Sprintf("the neighbour %v did not answer (ARP or ND) to source GID index %d: check its address, "+
				"its link and both network masks", grh.DGID, grh.SGIDIndex))
		case syscall.EHOSTUNREACH, syscall.ENETUNREACH:
			parts = append(parts, fmt.Sprintf("there is no route to %v from source GID index %d", grh.DGID, grh.SGIDIndex))
		default:
			parts = append(parts, fmt.Sprintf("peer GID %v, source GID index %d, path MTU code %d, peer queue pair %#x",
				grh.DGID, grh.SGIDIndex, attr.PathMTU, attr.DestQPNum))
		}
	}
	return strings.Join(parts, "; ")
}

func stateName(s uint32) string {
	return strings.TrimPrefix(nameOf(qpStateNames, "state", s), "IBV_QPS_")
}

type transition struct{ from, to uint32 }

type masks struct{ required, optional uint32 }

// running are the attributes that a reliable connection may change while it sends.
const running = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE

// transitions are the state changes of a reliable connection, besides those to RESET and ERR, which are allowed from
// everywhere and take no attributes (InfiniBand specification, volume 1, modify queue pair).
var transitions = map[transition]masks{
	{IBV_QPS_RESET, IBV_QPS_INIT}: {
		required: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	},
	{IBV_QPS_INIT, IBV_QPS_INIT}: {
		optional: IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	},
	{IBV_QPS_INIT, IBV_QPS_RTR}: {
		required: IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		optional: IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
	},
	{IBV_QPS_RTR, IBV_QPS_RTS}: {
		required: IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		optional: running,
	},
	{IBV_QPS_RTS, IBV_QPS_RTS}: {optional: running},
	{IBV_QPS_RTS, IBV_QPS_SQD}: {optional: IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS}: {optional: running},
	{IBV_QPS_SQD, IBV_QPS_SQD}: {
		optional: IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
			IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE,
	},
}

// maskFaults says what is wrong with the mask of a change, or that nothing is.
func maskFaults(from, to, mask uint32) string {
	m, ok := transitions[transition{from, to}]
	if to == IBV_QPS_RESET || to == IBV_QPS_ERR {
		m, ok = masks{}, true
	}
	if !ok {
		return "there is no such change of state for a reliable connection"
	}
	var faults []string
	if missing := m.required &^ mask; missing != 0 {
		faults = append(faults, "missing "+attrNames(missing))
	}
	if extra := mask &^ (m.required | m.optional | IBV_QP_STATE); extra != 0 {
		faults = append(faults, "not allowed "+attrNames(extra))
	}
	if len(faults) == 0 {
		return "the attributes are the right ones, so one of their values is out of range for this device"
	}
	return strings.Join(faults, "; ")
}

func attrNames(mask uint32) string {
	var names []string
	for ; mask != 0; mask &= mask - 1 {
		names = append(names, nameOf(qpAttrNames, "IBV_QP", 1<<bits.TrailingZeros32(mask)))
	}
	return strings.Join(names, ", ")
}
