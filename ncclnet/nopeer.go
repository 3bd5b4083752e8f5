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

// noPeerWait is how long a listener waits for its connection before a warning is logged.
const noPeerWait = time.Minute

// noPeerWarning warns about a listener without a connection.
//
// From NCCL 2.22 on, two ranks that choose different algorithms for their first operation never call connect: each
// listens, and then waits in NCCL's own network until the other chooses the same algorithm. There is no session in
// which the ranks could compare their settings.
type noPeerWarning struct{ logged atomic.Bool }

// watch starts the wait of one listener. The caller stops the returned timer when a connection has arrived, or the
// listener is closed.
func (a *noPeerWarning) watch(n *Net, settings []handshake.Setting) *clock.Timer {
	return n.process.host.Machine.Clock.AfterFunc(noPeerWait, func() {
		guard.Run(func() {
			if !a.logged.Swap(true) {
				n.log.Warn(noPeerText(settings))
			}
		}, func(p *guard.Panic) { n.log.Error(p.Report()) })
	})
}

// noPeerText returns the text of the warning, with the possible reasons.
func noPeerText(settings []handshake.Setting) string {
	var list []string
	for _, s := range settings {
		if s.Rule == handshake.RuleSame && (s.Value != "" || strings.HasPrefix(s.Name, "NCCL_MESH_")) {
			list = append(list, s.Name+"="+s.Value)
		}
	}
	return fmt.Sprintf("this rank has waited %.0f s for another to connect. That rank is busy, or dead, or the two chose different algorithms and wait for ever: "+
		"all ranks need the same NCCL, the same tuner (no libnccl-tuner.so on one node alone), and the same settings, which are %s here", noPeerWait.Seconds(), strings.Join(list, ", "))
}
