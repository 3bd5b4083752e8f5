package netplan

import (
	"bytes"
	"context"
	"os/exec"
	"syscall"
	"time"

	"ncclmesh/tools/ncclmesh/procgroup"
)

// Run runs the real netplan and returns what it has printed. When the context ends, it kills netplan and what that has
// started.
func Run(ctx context.Context, verb string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.Command("netplan", verb)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // for what has left the group and keeps the output open
	group, err := procgroup.Start(cmd)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { group.Signal(syscall.SIGKILL) })
	defer stop()
	err = group.Wait(nil)
	return out.Bytes(), err
}
