package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Config is how a lab runs. The zero value is usable.
type Config struct {
	Accel    Accel                      // auto: KVM where it works, else emulation
	Memory   int                        // of each machine in MB; 0 is 1024
	BootTime time.Duration              // how long booting may take; 0 is 3 minutes
	Files    []string                   // files and directories to copy into /job before booting
	Env      map[string]string          // set for every script
	Log      func(machine, line string) // gets the scripts' output as it appears; called from several goroutines
	Progress *Progress
}

// A Lab is a running mesh.
type Lab struct {
	Job string // the host's path of /job

	images   *Images
	mesh     Mesh
	accel    Accel
	memory   int
	extraEnv map[string]string
	log      func(machine, line string)
	dir      string
	lock     *os.File // held while the lab runs
	network  *l2switch
	machines []*Machine
}

// agentDir, below the job directory, holds the agents' scripts and outputs.
const agentDir = ".lab"

const dirPrefix = "ncclmesh-lab-"

// Start boots all machines of a mesh and returns when their ports are up.
func (im *Images) Start(ctx context.Context, mesh Mesh, cfg Config) (*Lab, error) {
	l := &Lab{images: im, mesh: mesh, accel: cfg.Accel.resolve(), memory: cfg.Memory, extraEnv: cfg.Env, log: cfg.Log}
	if l.memory == 0 {
		l.memory = 1024
	}
	if cfg.BootTime == 0 {
		cfg.BootTime = 3 * time.Minute
	}
	if err := l.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context, cfg Config) error {
	begin := time.Now()
	var err error
	sweep(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if l.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return err
	}
	if l.lock, err = os.Create(l.path("lock")); err != nil {
		return err
	}
	if err := flock(l.lock, unix.LOCK_EX); err != nil {
		return err
	}
	const longest = 107 // bytes in the path of a socket
	if p := l.path("monitor.x"); len(p) > longest {
		return fmt.Errorf("%s: sockets cannot have a path of more than %d bytes; run with TMPDIR=/tmp", p, longest)
	}
	l.Job = l.path("job")
	if err := os.MkdirAll(filepath.Join(l.Job, agentDir), 0o755); err != nil {
		return err
	}
	for _, f := range cfg.Files {
		if err := copyInto(l.Job, f); err != nil {
			return fmt.Errorf("copy %s to the job directory: %w", f, err)
		}
	}
	if err := l.writeInitramfs(); err != nil {
		return err
	}
	if l.network, err = newSwitch(l.dir, l.mesh.Machines); err != nil {
		return err
	}
	what := "emulation"
	if l.accel == AccelKVM {
		what = "KVM"
	}
	cfg.Progress.Say("booting %d x Linux %s (%s)", len(l.mesh.Machines), l.images.Release, what)
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.BootTime, fmt.Errorf("more than %v", cfg.BootTime))
	defer cancel()
	if err := l.bootAll(ctx); err != nil {
		return err
	}
	cfg.Progress.Say("up after %.1f s", time.Since(begin).Seconds())
	return nil
}

// bootAll boots and sets up all machines at once; the first failure ends the others.
func (l *Lab) bootAll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var first error
	l.machines = make([]*Machine, len(l.mesh.Machines))
	var wg sync.WaitGroup
	for i, name := range l.mesh.Machines {
		wg.Go(func() {
			m, err := l.boot(ctx, name)
			if err == nil {
				var res Result
				res, err = m.Run(ctx, l.mesh.setup(name))
				if err == nil && res.Status != 0 {
					err = fmt.Errorf("%s: set-up failed with status %d:\n%s", Host(name), res.Status, res.Output)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			l.machines[i] = m
			if err != nil && first == nil {
				first = err
				cancel()
			}
		})
	}
	wg.Wait()
	return first
}

// writeInitramfs adds the guest's scripts to the constant part.
func (l *Lab) writeInitramfs() error {
	out, err := os.Create(l.path("initramfs"))
	if err != nil {
		return err
	}
	in, err := os.Open(filepath.Join(l.images.dir, initramfsFile))
	if err != nil {
		return errors.Join(err, out.Close())
	}
	defer in.Close()
	_, err = io.Copy(out, in)
	c := &cpioWriter{w: out}
	for name, place := range map[string]string{"init": "init", "agent": "lab/agent", "lib.sh": "lab/lib.sh"} {
		b, rerr := guest.ReadFile("guest/" + name)
		err = errors.Join(err, rerr)
		c.script(place, b)
	}
	return errors.Join(err, c.close(), out.Close())
}

// env is the environment of every script.
func (l *Lab) env() map[string]string {
	e := map[string]string{"NCCL_MESH_TIME_SCALE": l.accel.TimeScale(), "NCCL_SOCKET_IFNAME": ManagementIface}
	for k, v := range l.extraEnv {
		e[k] = v
	}
	return e
}

// Machine returns the named machine.
func (l *Lab) Machine(name string) *Machine {
	for _, m := range l.machines {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// RunAll runs a script in all machines at once, with NODE different in each, and returns their results in order. The first
// error about a machine stops the others.
func (l *Lab) RunAll(ctx context.Context, script string) ([]Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]Result, len(l.machines))
	var wg sync.WaitGroup
	for i, m := range l.machines {
		wg.Go(func() {
			var err error
			if results[i], err = m.Run(ctx, script); err != nil {
				cancel(err) // of all errors the first one counts
			}
		})
	}
	wg.Wait()
	return results, context.Cause(ctx)
}

// SetCable pulls or plugs in a cable, at both ends.
func (l *Lab) SetCable(cable string, up bool) error {
	for _, c := range l.mesh.Cables {
		if c.Name == cable {
			return errors.Join(l.Machine(c.Ends[0].Machine).SetLink(cable, up), l.Machine(c.Ends[1].Machine).SetLink(cable, up))
		}
	}
	return fmt.Errorf("no cable %q between two machines in the %s", cable, l.mesh.Name)
}

// Close ends all machines and removes everything the lab made, the job directory as well.
func (l *Lab) Close() error {
	var wg sync.WaitGroup
	for _, m := range l.machines {
		if m != nil {
			wg.Go(m.halt)
		}
	}
	wg.Wait()
	var errs []error
	if l.network != nil {
		errs = append(errs, l.network.Close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	if l.dir != "" {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}

// sweep removes the directories of labs whose process was killed. Their machines ended with it.
func sweep(pattern string) {
	dirs, _ := filepath.Glob(pattern)
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil || time.Since(st.ModTime()) < time.Minute { // a new one may not hold its lock yet
			continue
		}
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			continue
		}
		if flock(lock, unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

func (l *Lab) path(name string) string { return filepath.Join(l.dir, name) }

// copyInto copies a file, or the contents of a directory, into dir. Links are followed.
func copyInto(dir, from string) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return copyFile(filepath.Join(dir, filepath.Base(from)), from)
	}
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		}
		return copyFile(filepath.Join(dir, rel), name)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, st.Mode()&0o777)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
