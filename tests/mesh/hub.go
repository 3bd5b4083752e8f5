package mesh

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// hub holds the mesh together: it makes cables and management network, starts a
// process on each node, passes on what they print, and ends with them. Its own
// network namespace is the management network's switch.
func hub() error {
	var p plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	if err := privateMounts(); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch"}}
	if err := up(bridge); err != nil {
		return fmt.Errorf("make the management network: %w", err)
	}
	nodes := map[string]*process{}
	for _, name := range p.Mesh.Nodes {
		n, err := startNode(name)
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		nodes[name] = n
	}
	for i, name := range p.Mesh.Nodes {
		n := nodes[name]
		if err := veth(fmt.Sprintf("m%d", i), bridge, ManagementIface, n, 1500); err != nil {
			return fmt.Errorf("connect %s to the management network: %w", name, err)
		}
		n.setup.Ifaces = append(n.setup.Ifaces, iface{ManagementIface, p.Mesh.Management(name).String() + "/24"})
	}
	for _, c := range p.Mesh.Cables {
		a, b := nodes[c.Ends[0].Node], nodes[c.Ends[1].Node]
		if err := cable(c, a, b); err != nil {
			return fmt.Errorf("cable %s %s to %s %s: %w", c.Ends[0].Node, c.Ends[0].Iface, c.Ends[1].Node, c.Ends[1].Iface, err)
		}
		for i, n := range []*process{a, b} {
			n.setup.Ifaces = append(n.setup.Ifaces, iface{c.Ends[i].Iface, fmt.Sprintf("%v/%d", c.Ends[i].Addr, c.Net.Bits())})
		}
	}
	var out sync.Mutex
	var all sync.WaitGroup
	var errs []error
	for _, name := range p.Mesh.Nodes {
		n := nodes[name]
		n.setup.Host, n.setup.Command = name, p.Commands[name]
		all.Go(func() {
			if err := n.run(name, &out); err != nil {
				out.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
				out.Unlock()
			}
		})
	}
	all.Wait()
	for _, n := range nodes {
		_ = n.net.Close()
	}
	return errors.Join(errs...)
}

// process is that of a node, seen from the hub.
type process struct {
	cmd   *exec.Cmd
	setup setup
	in    io.WriteCloser
	out   io.ReadCloser
	net   *os.File // its network, which stays until all nodes are done
}

// setup is what a node's process is told.
type setup struct {
	Host    string
	Ifaces  []iface
	Command []string
}

type iface struct{ Name, Addr string }

// startNode starts a process in namespaces of its own, which waits for its setup.
func startNode(name string) (*process, error) {
	cmd := exec.Command("/proc/self/exe")
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, roleVariable+"=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, roleVariable+"="+roleNode)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	n := &process{cmd: cmd}
	var err error
	if n.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if n.out, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n.net, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	return n, err
}

// run lets the process begin, passes on what it prints and how it ends.
func (n *process) run(name string, out *sync.Mutex) error {
	note := func(kind byte, text string) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf("%c%s\t%s\n", kind, name, text)
	}
	if err := json.NewEncoder(n.in).Encode(n.setup); err != nil {
		return err
	}
	_ = n.in.Close()
	lines := bufio.NewScanner(n.out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		note(noteLine, lines.Text())
	}
	if err := lines.Err(); err != nil {
		return err
	}
	err := n.cmd.Wait()
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	state := n.cmd.ProcessState.Sys().(syscall.WaitStatus)
	status := state.ExitStatus()
	if state.Signaled() {
		status = 128 + int(state.Signal())
	}
	note(noteEnd, fmt.Sprint(status))
	return nil
}

// veth makes a cable from the bridge to a node.
func veth(here string, bridge *netlink.Bridge, there string, n *process, mtu int) error {
	attrs := netlink.LinkAttrs{Name: here, MTU: mtu, MasterIndex: bridge.Index}
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: there, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsPid(n.cmd.Process.Pid)}
	return up(link)
}

// cable makes a cable between two nodes.
func cable(c Cable, a, b *process) error {
	attrs := netlink.LinkAttrs{Name: c.Ends[0].Iface, MTU: mtu, Namespace: netlink.NsPid(a.cmd.Process.Pid)}
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: c.Ends[1].Iface, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsPid(b.cmd.Process.Pid)})
}

// up makes a link and brings it up.
func up(l netlink.Link) error {
	if err := netlink.LinkAdd(l); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func privateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	return nil
}
