package ncclnet

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
)

// aloneFor is how long a listener waits for its connection before the log says so.
const aloneFor = time.Minute

// alone warns of a listener to which nobody connects.
//
// From NCCL 2.22 on two ranks that choose different algorithms for their first operation never get as far as connect: each
// listens, and then waits in NCCL's own network for the other to come to the same algorithm. No session tells them of each
// other's settings.
type alone struct{ said atomic.Bool }

// watch starts the wait of one listener. The timer it returns has to be stopped when a connection has come, or the listener
// is closed.
func (a *alone) watch(n *Net, settings []handshake.Setting) *clock.Timer {
	return n.process.host.Machine.Clock.AfterFunc(aloneFor, func() {
		guard.Run(func() {
			if !a.said.Swap(true) {
				n.log.Warn(waiting(settings))
			}
		}, func(p *guard.Panic) { n.log.Error(p.Report()) })
	})
}

// waiting says what may be the matter.
func waiting(settings []handshake.Setting) string {
	var list []string
	for _, s := range settings {
		if s.Rule == handshake.RuleSame && (s.Value != "" || strings.HasPrefix(s.Name, "NCCL_MESH_")) {
			list = append(list, s.Name+"="+s.Value)
		}
	}
	return fmt.Sprintf("this rank has waited %.0f s for another to connect. That rank is busy, or dead, or the two chose different algorithms and wait for ever: "+
		"all ranks need the same NCCL, the same tuner (no libnccl-tuner.so on one node alone), and the same settings, which are %s here", aloneFor.Seconds(), strings.Join(list, ", "))
}
