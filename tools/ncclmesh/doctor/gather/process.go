package gather

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// secret is the variable whose value does not leave the node.
const secret = "NCCL_MESH_KEY"

// told are the variables that are looked at beside those of NCCL.
var told = []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "VLLM_NCCL_SO_PATH"}

// process is the one whose environment is judged.
func (l *looker) process() {
	p := &l.node.Process
	p.PID = l.PID
	environ, err := l.Environ, error(nil)
	if l.PID != 0 {
		environ, err = l.environ()
	}
	p.Env = facts.Of(relevant(environ), err)
	p.Locked = l.locked()
	p.Exempt = l.exempt()
	p.Mapped = l.mapped()
	if err != nil {
		why := p.Env.Because()
		p.Plugin, p.NCCL, p.Preload = facts.Unknown[facts.Library](why), facts.Unknown[[]facts.Library](why), facts.Unknown[[]facts.Library](why)
		p.Installed = facts.Unknown[facts.Library](why)
		p.Conf, p.DebugTo = facts.Unknown[[]facts.Line](why), facts.Unknown[facts.Library](why)
		return
	}
	p.Refused, p.Unheard = refused(environ), config.Unknown(environ)
	env, _ := p.Env.Get()
	p.Conf = l.conf(env, environ)
	p.Preload = facts.Known(l.preload(env["LD_PRELOAD"]))
	p.DebugTo = facts.Known(l.debugTo(env["NCCL_DEBUG_FILE"]))
	p.Plugin = facts.Known(l.plugin(env))
	p.Installed = facts.Known(l.named(env, "mesh"))
	p.NCCL = l.nccl(env)
}

// proc is a file of the process that is looked at.
func (l *looker) proc(elem ...string) string {
	who := "self"
	if l.PID != 0 {
		who = strconv.Itoa(l.PID)
	}
	return l.path("proc", who, filepath.Join(elem...))
}

// environ is that of a job's process, as it was when it started.
func (l *looker) environ() ([]string, error) {
	b, err := os.ReadFile(l.proc("environ"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no process %d", l.PID)
	}
	if err != nil {
		return nil, plain(err)
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}

// relevant is what NCCL and the loader read, without secrets.
func relevant(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !strings.HasPrefix(name, "NCCL_") && !slices.Contains(told, name) {
			continue
		}
		if name == secret && value != "" {
			value = "(set)"
		}
		env[name] = value
	}
	return env
}

// refused are the values that the plugin does not accept, and what it wants instead.
func refused(environ []string) (said []string) {
	for _, s := range config.Settings(getenv(environ)) {
		if s.Err != nil {
			said = append(said, fmt.Sprintf("%s=%q: %v", s.Err.Name, s.Err.Value, s.Err.Err))
		}
	}
	return said
}

// locked is the limit of locked memory.
func (l *looker) locked() facts.Fact[facts.Limit] {
	b, err := os.ReadFile(l.proc("limits"))
	if err != nil {
		return facts.Unknown[facts.Limit](plain(err).Error())
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		if len(words) == 0 {
			break
		}
		if words[0] == "unlimited" {
			return facts.Known(facts.Limit{Unlimited: true})
		}
		n, err := strconv.ParseUint(words[0], 10, 64)
		return facts.Of(facts.Limit{Bytes: n}, err)
	}
	return facts.Unknown[facts.Limit]("/proc shows no limit of locked memory")
}

// exempt reports whether the kernel lets the process lock more memory than its limit: it does where the process has
// CAP_IPC_LOCK in the machine's own user namespace, whose ids are mapped to themselves.
func (l *looker) exempt() facts.Fact[bool] {
	b, err := os.ReadFile(l.proc("status"))
	if err != nil {
		return facts.Unknown[bool](plain(err).Error())
	}
	ids, err := os.ReadFile(l.proc("uid_map"))
	if err != nil {
		return facts.Unknown[bool](plain(err).Error())
	}
	own := slices.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"})
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return facts.Of(own && caps&(1<<unix.CAP_IPC_LOCK) != 0, err)
		}
	}
	return facts.Unknown[bool]("/proc shows no capabilities")
}

// mapped are NCCL and its network plugins that a job has loaded.
func (l *looker) mapped() facts.Fact[[]facts.Library] {
	if l.PID == 0 {
		return facts.Unknown[[]facts.Library]("no job was named: --pid N")
	}
	f, err := os.Open(l.proc("maps"))
	if err != nil {
		return facts.Unknown[[]facts.Library](plain(err).Error())
	}
	defer f.Close()
	var paths []string
	s := bufio.NewScanner(f)
	for s.Scan() {
		i := strings.IndexByte(s.Text(), '/')
		if i < 0 {
			continue
		}
		path := strings.TrimSuffix(s.Text()[i:], " (deleted)")
		if strings.HasPrefix(filepath.Base(path), "libnccl") && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	if err := s.Err(); err != nil {
		return facts.Unknown[[]facts.Library](plain(err).Error())
	}
	all := []facts.Library{}
	for _, path := range paths {
		all = append(all, l.library(path))
	}
	return facts.Known(all)
}

// conf are the lines of NCCL's configuration files: settings that every process on the node has.
func (l *looker) conf(env map[string]string, environ []string) facts.Fact[[]facts.Line] {
	home := l.Home
	if l.PID != 0 {
		home = getenv(environ)("HOME")
	}
	files := []string{env["NCCL_CONF_FILE"], filepath.Join(home, ".nccl.conf"), "/etc/nccl.conf"}
	if home == "" {
		files[1] = ""
	}
	lines := []facts.Line{}
	for _, name := range files {
		if name == "" {
			continue
		}
		info, err := os.Stat(l.seen(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.Mode().IsRegular() { // a pipe would be waited for
			return facts.Unknown[[]facts.Line](name + " is no regular file")
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(l.seen(name))
		}
		if err != nil {
			return facts.Unknown[[]facts.Line](plain(err).Error())
		}
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if key = strings.TrimSpace(key); !ok || strings.HasPrefix(key, "#") {
				continue
			}
			if key == secret {
				value = "(set)"
			}
			lines = append(lines, facts.Line{File: name, Line: n, Name: key, Value: strings.TrimSpace(value)})
		}
	}
	return facts.Known(lines)
}

// seen is where a file is that the judged process calls so: a job in a container has a root
// of its own.
func (l *looker) seen(name string) string {
	if l.PID != 0 {
		return l.proc("root", name)
	}
	if !filepath.IsAbs(name) {
		return name
	}
	return l.path(name)
}

// preload is what LD_PRELOAD names.
func (l *looker) preload(value string) []facts.Library {
	all := []facts.Library{}
	for _, path := range strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' }) {
		if strings.ContainsRune(path, '/') { // else the loader searches, and knows best
			all = append(all, l.library(path))
		}
	}
	return all
}

// debugTo is the directory that NCCL's log goes to.
func (l *looker) debugTo(file string) facts.Library {
	if file == "" {
		return facts.Library{}
	}
	dir := filepath.Dir(file)
	if !filepath.IsAbs(dir) && l.PID != 0 {
		cwd, err := os.Readlink(l.proc("cwd"))
		if err != nil {
			return facts.Library{}
		}
		dir = filepath.Join(cwd, dir)
	}
	info, err := os.Stat(l.seen(dir))
	return facts.Library{Path: dir, Missing: err != nil || !info.IsDir()}
}
