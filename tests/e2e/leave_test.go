package e2e

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"ncclmesh/ibv"
	"ncclmesh/ncclnet"
)

// What the sender leaves behind takes a second.
const (
	leftMessages = 12
	leftSize     = 512 << 10 // bytes of each
)

// A process that ends once its sends are done, and says nothing more, as under the interfaces without a finalize, has
// delivered them, though the link is slow and the kernel has much of them yet and grants that nobody reads.
func TestLeaves(t *testing.T) {
	t.Parallel()
	f := newFabric(t, `
		netif a p0 addr 192.168.1.1/24
		netif b p0 addr 192.168.1.2/24
		link a:p0 b:p0`)
	for _, node := range f.Nodes {
		if out, err := f.command(node, "tc", strings.Fields("qdisc add dev p0 root tbf rate 50mbit burst 32k latency 400ms")...).CombinedOutput(); err != nil {
			t.Fatalf("tc: %v: %s", err, out)
		}
	}
	sender, receiver := f.command("a", os.Args[0]), f.command("b", os.Args[0])
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sender.Stdin, receiver.Stdout = in, out
	var said [2]bytes.Buffer
	ends := [2]chan error{make(chan error, 1), make(chan error, 1)}
	for i, c := range []*exec.Cmd{sender, receiver} {
		name := []string{"leave", "stay"}[i]
		c.Env = append(c.Env, "NCCL_MESH_TCP_STREAMS=1", "E2E_HELPER="+name, "NCCL_MESH_TRANSPORT=tcp", "NCCL_SOCKET_IFNAME=mgmt0", "NCCL_HOSTID="+name)
		c.Stderr = &said[i]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		guard := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		go func() {
			ends[i] <- c.Wait()
			guard.Stop()
		}()
	}
	if err := errors.Join(in.Close(), out.Close(), <-ends[0], <-ends[1]); err != nil {
		t.Errorf("%v\nthe sender: %s\nthe receiver: %s", err, &said[0], &said[1])
	}
}

func init() { helpers["leave"], helpers["stay"] = leave, stay }

// leave sends, and ends.
func leave() error {
	var theirs [ncclnet.HandleSize]byte
	text, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	if k, err := hex.Decode(theirs[:], bytes.TrimSpace([]byte(text))); err != nil || k != len(theirs) {
		return fmt.Errorf("the receiver says %q", text)
	}
	n, ctx, m, err := left()
	if err != nil {
		return err
	}
	var send ncclnet.Handle
	if err := again(func() (done bool, r ncclnet.Result) {
		send, r = n.Connect(ctx, 0, &theirs)
		return send != 0, r
	}); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	mr, r := n.RegMr(send, m.Addr(), uintptr(leftMessages*leftSize), 1)
	if r != 0 {
		return fmt.Errorf("regMr: %v", r)
	}
	fill(m)
	_, err = move(leftMessages, leftMessages, n, func(i int) (ncclnet.Handle, ncclnet.Result) {
		return n.Isend(send, m.Addr()+uintptr(i*leftSize), leftSize, 1, mr, 0)
	})
	n.FlushBeforeExit() // as the library does when a process of C ends
	return err
}

// stay receives, and has grants under way that are for nothing.
func stay() error {
	n, ctx, m, err := left()
	if err != nil {
		return err
	}
	l, own, r := n.Listen(ctx, 0)
	if r != 0 {
		return fmt.Errorf("listen: %v", r)
	}
	fmt.Println(hex.EncodeToString(own[:]))
	var recv ncclnet.Handle
	if err := again(func() (done bool, r ncclnet.Result) {
		recv, r = n.Accept(l)
		return recv != 0, r
	}); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	const more = 8
	mr, r := n.RegMr(recv, m.Addr(), uintptr(leftMessages*leftSize), 1)
	if r != 0 {
		return fmt.Errorf("regMr: %v", r)
	}
	requests, err := move(leftMessages+more, leftMessages, n, func(i int) (ncclnet.Handle, ncclnet.Result) {
		return n.Irecv(recv, []ncclnet.Buffer{{Addr: m.Addr() + uintptr(i%leftMessages*leftSize), Size: leftSize, Tag: 1, MR: mr}})
	})
	if err != nil {
		return err
	}
	want, err := ibv.Alloc(leftMessages * leftSize)
	if err != nil {
		return err
	}
	if fill(want); !bytes.Equal(want.Bytes()[:leftMessages*leftSize], m.Bytes()[:leftMessages*leftSize]) {
		return errors.New("what came is not what was sent")
	}
	if err := await(n, requests[leftMessages]); err == nil { // until the sender has gone
		return errors.New("another message came")
	}
	return nil
}

// left starts the plugin, and gets memory for all messages.
func left() (*ncclnet.Net, ncclnet.Handle, *ibv.Memory, error) {
	n := ncclnet.New(ncclnet.NewProcess(ncclnet.Host{Getenv: os.Getenv, Environ: os.Environ}))
	ctx, r := n.Init(func(_, _ int, _ string, _ int, text string) { fmt.Fprintln(os.Stderr, text) }, ncclnet.Caller{}, -1)
	if r != 0 {
		return nil, 0, nil, fmt.Errorf("init: %v", r)
	}
	m, err := ibv.Alloc(leftMessages * leftSize)
	return n, ctx, m, err
}

func fill(m *ibv.Memory) {
	for i := range m.Bytes() {
		m.Bytes()[i] = byte(i * 7 >> 3)
	}
}

// again polls f until it is done.
func again(f func() (bool, ncclnet.Result)) error {
	for {
		switch done, r := f(); {
		case r != 0:
			return fmt.Errorf("%v", r)
		case done:
			return nil
		}
		runtime.Gosched()
	}
}

// move posts requests and waits for the first of them.
func move(posted, wanted int, n *ncclnet.Net, post func(int) (ncclnet.Handle, ncclnet.Result)) (requests []ncclnet.Handle, err error) {
	for i := range posted {
		if err := again(func() (bool, ncclnet.Result) {
			q, r := post(i)
			if q != 0 {
				requests = append(requests, q)
			}
			return q != 0, r
		}); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	for i, q := range requests[:wanted] {
		if err := await(n, q); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return requests, nil
}

// await waits for a request.
func await(n *ncclnet.Net, q ncclnet.Handle) error {
	var sizes ncclnet.Sizes
	return again(func() (bool, ncclnet.Result) {
		done, r := n.Test(q, &sizes)
		return done, r
	})
}
