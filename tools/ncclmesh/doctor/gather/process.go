package gather

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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

// told are the variables that are looked at beside those of NCCL: the loader's, and those by which frameworks say where a node
// is to be reached.
var told = []string{
	"LD_PRELOAD", "LD_LIBRARY_PATH", "VLLM_NCCL_SO_PATH",
	"MASTER_ADDR", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "VLLM_HOST_IP", "SGLANG_HOST_IP",
}

// process is the one whose environment is judged.
func (l *looker) process() {
	p := &l.node.Process
	p.PID = l.PID
	environ, err := l.Environ, error(nil)
	if l.PID != 0 {
		environ, err = l.environ()
	}
	p.Locked, p.Files = l.limit("Max locked memory", 0), l.limit("Max open files", 1)
	p.Exempt = l.exempt()
	p.Shared = l.shared()
	p.Mapped = l.mapped()
	if err != nil {
		p.Env = facts.Unknown[map[string]string](err.Error())
		why := p.Env.Because()
		p.Plugin, p.NCCL, p.Preload = facts.Unknown[facts.Library](why), facts.Unknown[[]facts.Library](why), facts.Unknown[[]facts.Library](why)
		p.Installed, p.Loaded = facts.Unknown[facts.Library](why), facts.Unknown[facts.Loaded](why)
		p.Conf, p.DebugTo = facts.Unknown[[]facts.Line](why), facts.Unknown[facts.Library](why)
		return
	}
	lines, err := l.conf(environ)
	p.Conf = facts.Of(lines, err)
	environ, p.Origin = filled(environ, lines)
	for i := range lines {
		lines[i].Value = shown(lines[i].Name, lines[i].Value)
	}
	env := relevant(environ)
	p.Env = facts.Known(env)
	p.Serves = l.serves(environ)
	p.Refused, p.Unheard = refused(environ, p.Origin), config.Unknown(environ)
	p.Compared, p.Key = config.Told(getenv(environ)), l.print(getenv(environ)(secret))
	p.Preload = facts.Known(l.preload(env["LD_PRELOAD"]))
	p.DebugTo = facts.Known(l.debugTo(env["NCCL_DEBUG_FILE"]))
	p.Plugin = facts.Known(l.plugin(env))
	p.Installed = facts.Known(l.named(env, "mesh"))
	p.NCCL = l.nccl(env)
	p.Loaded = l.load()
}

// serves reports whether an environment has variables of vLLM or SGLang, or a job's command line names one of them.
func (l *looker) serves(environ []string) bool {
	of := func(kv string) bool { return strings.HasPrefix(kv, "VLLM_") || strings.HasPrefix(kv, "SGLANG_") }
	if l.PID == 0 || slices.ContainsFunc(environ, of) {
		return slices.ContainsFunc(environ, of)
	}
	line, _ := os.ReadFile(l.proc("cmdline")) // which tells no more where it cannot be read
	return bytes.Contains(line, []byte("vllm")) || bytes.Contains(line, []byte("sglang"))
}

// filled returns an environment with what NCCL's files add to it, and which file a variable of theirs is in: the first that
// names it, where the environment does not.
func filled(environ []string, lines []facts.Line) (all []string, origin map[string]string) {
	all, origin = slices.Clone(environ), map[string]string{}
	for _, l := range lines {
		set := slices.ContainsFunc(all, func(kv string) bool { return strings.HasPrefix(kv, l.Name+"=") })
		if !set && strings.HasPrefix(l.Name, "NCCL_") {
			all, origin[l.Name] = append(all, l.Name+"="+l.Value), l.File
		}
	}
	return all, origin
}

// shown is a variable's value as it may leave the node.
func shown(name, value string) string {
	if name == secret && value != "" {
		return "(set)"
	}
	return value
}

// print returns what equal keys of two nodes have in common, and nothing else does, in one run of the command; "" for none.
func (l *looker) print(key string) string {
	if key == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(l.Salt))
	return hex.EncodeToString(mac.Sum(nil))
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
		env[name] = shown(name, value)
	}
	return env
}

// refused are the values that the plugin does not accept, and what it wants instead.
func refused(environ []string, origin map[string]string) (said []string) {
	for _, s := range config.Settings(getenv(environ)) {
		if s.Err == nil {
			continue
		}
		line := fmt.Sprintf("%s=%q: %v", s.Err.Name, s.Err.Value, s.Err.Err)
		if file := origin[s.Err.Name]; file != "" {
			line = file + " sets " + line
		}
		said = append(said, line)
	}
	return said
}

// limit is one of a process, by its name in /proc: the soft one (column 0), which a process may have to keep to, or the hard one.
func (l *looker) limit(name string, column int) facts.Fact[facts.Limit] {
	b, err := os.ReadFile(l.proc("limits"))
	if err != nil {
		return facts.Unknown[facts.Limit](plain(err).Error())
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		if len(words) <= column {
			break
		}
		if words[column] == "unlimited" {
			return facts.Known(facts.Limit{Unlimited: true})
		}
		n, err := strconv.ParseUint(words[column], 10, 64)
		return facts.Of(facts.Limit{Most: n}, err)
	}
	return facts.Unknown[facts.Limit](fmt.Sprintf("/proc shows no %q", name))
}

// shared is how much the process can put into /dev/shm.
func (l *looker) shared() facts.Fact[uint64] {
	free, err := l.Free(l.seen("/dev/shm"))
	if err != nil {
		return facts.Unknown[uint64](plain(&fs.PathError{Op: "statfs", Path: "/dev/shm", Err: err}).Error())
	}
	return facts.Known(free)
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

// conf are the lines of the files that NCCL reads: the one that NCCL_CONF_FILE names or else the user's, then the node's. What
// the environment does not set, the first of them that does sets for every job.
func (l *looker) conf(environ []string) ([]facts.Line, error) {
	get, home := getenv(environ), l.Home
	if l.PID != 0 {
		home = get("HOME")
	}
	user := get("NCCL_CONF_FILE")
	if user == "" && home != "" {
		user = filepath.Join(home, ".nccl.conf")
	}
	lines := []facts.Line{}
	for _, name := range []string{user, "/etc/nccl.conf"} {
		if name == "" {
			continue
		}
		info, err := os.Stat(l.seen(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.Mode().IsRegular() { // a pipe would be waited for
			return nil, errors.New(name + " is no regular file")
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(l.seen(name))
		}
		if err != nil {
			return nil, plain(err)
		}
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if key = strings.TrimSpace(key); ok && !strings.HasPrefix(key, "#") {
				lines = append(lines, facts.Line{File: name, Line: n, Name: key, Value: strings.TrimSpace(value)})
			}
		}
	}
	return lines, nil
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
