package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrMachine says that a machine or its emulator died.
var ErrMachine = errors.New("the machine died")

// A Machine is one running virtual machine. Its methods may be called from any goroutine.
type Machine struct {
	Name string

	lab     *Lab
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the emulator has ended
	console *tail
	agent   *net.UnixConn
	monitor *monitor

	mu      sync.Mutex
	running map[string]chan int // by request id: the script's status
	next    int
}

// boot starts the emulator and returns when the agent in the machine is ready.
func (l *Lab) boot(ctx context.Context, name string) (*Machine, error) {
	m := &Machine{Name: name, lab: l, exited: make(chan struct{}), console: &tail{limit: 64 << 10}, running: make(map[string]chan int)}
	agent, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.path("agent." + name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	control, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.path("monitor." + name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer control.Close()

	m.cmd = exec.Command(qemu, l.qemuArgs(name)...)
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the kernel sends Pdeathsig when the thread that started the process ends
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			_ = m.cmd.Wait()
			_ = agent.Close() // nobody will connect any more
			_ = control.Close()
		}
		close(m.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", qemu, err)
	}
	stop := context.AfterFunc(ctx, m.Kill)
	defer stop()

	m.agent, err = agent.AcceptUnix()
	if err != nil {
		return nil, m.died("did not start")
	}
	c, err := control.AcceptUnix()
	if err != nil {
		return nil, m.died("did not start")
	}
	if m.monitor, err = newMonitor(c); err != nil {
		m.Kill()
		return nil, m.died("did not start: " + err.Error())
	}
	lines := bufio.NewScanner(m.agent)
	if !lines.Scan() || lines.Text() != "ready" {
		m.Kill()
		<-m.exited
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%w: %s did not boot in time (%w); its console ends:\n%s", ErrMachine, Host(name), err, m.console)
		}
		return nil, m.died("did not boot")
	}
	go m.receive(lines)
	return m, nil
}

// qemuArgs is the whole command line: no default devices, and no network but sockets in the lab's own directory.
func (l *Lab) qemuArgs(name string) []string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	args := append(l.accel.qemuArgs(),
		"-M", "q35,usb=off,vmport=off", "-m", strconv.Itoa(l.memory), "-smp", strconv.Itoa(l.mesh.CPUs),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", filepath.Join(l.images.dir, kernelFile), "-initrd", l.path("initramfs"),
		"-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check random.trust_cpu=on audit=0 "+
			"selinux=0 apparmor=0 cryptomgr.notests NODE="+name+" HOST="+Host(name)+" MACHINE_ID="+hex.EncodeToString(id[:]),
		"-fsdev", "local,id=root,path="+filepath.Join(l.images.dir, rootDir)+",security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
		"-fsdev", "local,id=job,path="+l.Job+",security_model=none",
		"-device", "virtio-9p-pci,fsdev=job,mount_tag=job",
		"-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,path="+l.path("agent."+name), "-device", "virtserialport,chardev=agent,name=agent",
		"-chardev", "socket,id=monitor,path="+l.path("monitor."+name), "-mon", "chardev=monitor,mode=control",
	)
	nic := func(id, mac, local, remote string) {
		args = append(args,
			"-netdev", fmt.Sprintf("dgram,id=%s,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", id, local, remote),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,id=nic-%s,mac=%s,romfile=", id, id, mac))
	}
	for i, c := range l.mesh.Cables {
		for side, e := range c.Ends {
			if e.Machine == name {
				nic(c.Name, l.mesh.mac(name, i), l.path(c.Name+"."+name), l.path(c.Name+"."+c.Ends[1-side].Machine))
			}
		}
	}
	nic(ManagementIface, l.mesh.mac(name, managementLink), machineSocket(l.dir, name), switchSocket(l.dir, name))
	return args
}

// receive hands the agent's answers to those who wait for them.
func (m *Machine) receive(lines *bufio.Scanner) {
	for lines.Scan() {
		var id string
		var status int
		if n, _ := fmt.Sscanf(lines.Text(), "done %s %d", &id, &status); n != 2 {
			continue
		}
		m.mu.Lock()
		done := m.running[id]
		delete(m.running, id)
		m.mu.Unlock()
		if done != nil {
			done <- status
		}
	}
}

// A Result is how a script ended.
type Result struct {
	Machine string
	Status  int
	Output  string // stdout and stderr as written
}

// Run runs a bash script as root in the machine, in /job. The error is about the machine or ctx; a script that fails is a
// Result with its status. When ctx ends, the script and its children are killed.
func (m *Machine) Run(ctx context.Context, script string) (Result, error) {
	done := make(chan int, 1)
	m.mu.Lock()
	m.next++
	id := fmt.Sprintf("%s%d", m.Name, m.next)
	m.running[id] = done
	m.mu.Unlock()
	return m.run(ctx, id, script, done)
}

func (m *Machine) run(ctx context.Context, id, script string, done <-chan int) (Result, error) {
	res := Result{Machine: m.Name, Status: -1}
	var env strings.Builder
	for name, value := range m.lab.env() {
		fmt.Fprintf(&env, "export %s=%s\n", name, value)
	}
	private := filepath.Join(m.lab.Job, agentDir)
	if err := os.WriteFile(filepath.Join(private, id+".sh"), []byte("cd /job\n"+env.String()+script), 0o644); err != nil {
		return res, err
	}
	out := &follower{file: filepath.Join(private, id+".out")}
	if m.lab.log != nil {
		out.line = func(s string) { m.lab.log(m.Name, s) }
	}
	if err := m.send("run " + id); err != nil {
		return res, m.died("took no command: " + err.Error())
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	var err error
	for err == nil {
		select {
		case res.Status = <-done:
			res.Output = out.end()
			return res, nil
		case <-m.exited:
			err = m.died("ended while a script ran")
		case <-ctx.Done():
			_ = m.send("kill " + id)
			err = fmt.Errorf("%s: script stopped: %w", Host(m.Name), context.Cause(ctx))
		case <-poll.C:
			out.poll()
		}
	}
	res.Output = out.end()
	return res, err
}

func (m *Machine) send(line string) error {
	_ = m.agent.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, err := m.agent.Write([]byte(line + "\n"))
	return err
}

// Kill ends the machine at once, as a power cut does. It does not wait.
func (m *Machine) Kill() { _ = m.cmd.Process.Kill() }

// SetLink pulls (false) or plugs in (true) this machine's end of a cable: the interface loses its carrier and stays up.
func (m *Machine) SetLink(cable string, up bool) error {
	if err := m.monitor.setLink("nic-"+cable, up); err != nil {
		return fmt.Errorf("%s: cable %s: %w", Host(m.Name), cable, err)
	}
	return nil
}

// halt powers the machine off, and kills it when that takes too long.
func (m *Machine) halt() {
	if m.send("off") == nil {
		select {
		case <-m.exited:
			return
		case <-time.After(5 * time.Second):
		}
	}
	m.Kill()
	<-m.exited
}

func (m *Machine) died(how string) error {
	return fmt.Errorf("%w: %s %s; its console ends:\n%s", ErrMachine, Host(m.Name), how, m.console)
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	buf   []byte
	limit int
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = t.buf[over:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
