package gather

import (
	"bytes"
	"debug/buildinfo"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// library looks at a library's file.
func (l *looker) library(path string) facts.Library {
	found := facts.Library{Path: path}
	file := l.seen(path)
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() { // a pipe would be waited for
		found.Missing = true
		return found
	}
	base := filepath.Base(path)
	if strings.HasPrefix(base, "libnccl-net") {
		found.Ours = ours(file)
	} else if strings.HasPrefix(base, "libnccl.so") {
		found.Version = versionOf(file)
	}
	return found
}

// ours reports whether a library is this plugin: Go's linker writes the main package into it.
func ours(file string) bool {
	info, err := buildinfo.ReadFile(file)
	return err == nil && strings.HasPrefix(info.Path, "ncclmesh/")
}

// banner is what NCCL prints first of all, and so has in its data.
var banner = regexp.MustCompile(`NCCL version (\d+\.\d+\.\d+)\+`)

// maxNCCL is more than libnccl has, in bytes.
const maxNCCL = 2 << 30

// versionOf finds the version in NCCL's library without running any of it, "" where it has none.
func versionOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	const overlap = 64
	r := io.LimitReader(f, maxNCCL)
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		if m := banner.FindSubmatch(buf[:kept+n]); m != nil {
			return string(m[1])
		}
		if err != nil {
			return ""
		}
		kept = copy(buf, buf[kept+n-overlap:kept+n])
	}
}

// where the loader looks at last.
var systemDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// search finds a library as the loader would, "" where it is not. ld.so.conf is read, and the
// files that it includes are; its cache is not.
func (l *looker) search(env map[string]string, name string) string {
	dirs := append(strings.Split(env["LD_LIBRARY_PATH"], ":"), l.configured()...)
	for _, dir := range append(dirs, systemDirs...) {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(l.seen(filepath.Join(dir, name))); err == nil {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// configured are the directories that ld.so.conf.d adds.
func (l *looker) configured() (dirs []string) {
	files, _ := filepath.Glob(l.seen("/etc/ld.so.conf.d/*.conf"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				dirs = append(dirs, line)
			}
		}
	}
	return dirs
}

// plugin is the network plugin that NCCL would load by the environment. NCCL_NET_PLUGIN may be a list, of which NCCL takes
// the first that is of use; with NCCL_NET=mesh that is this plugin, wherever in the list it is.
func (l *looker) plugin(env map[string]string) (first facts.Library) {
	named := env["NCCL_NET_PLUGIN"]
	if named == "" {
		named = "libnccl-net.so"
	}
	for name := range strings.SplitSeq(named, ",") {
		found := l.named(env, name)
		if found.Ours && strings.EqualFold(env["NCCL_NET"], "mesh") {
			return found
		}
		if first.Path == "" || first.Missing && !found.Missing && found.Path != "" {
			first = found
		}
	}
	return first
}

// named is the library that NCCL loads for one name in NCCL_NET_PLUGIN; Path "" where the loader finds none.
func (l *looker) named(env map[string]string, name string) facts.Library {
	switch {
	case name == "none" || name == "":
		return facts.Library{}
	case strings.ContainsRune(name, '/'):
		return l.library(name)
	}
	for _, file := range []string{name, "libnccl-net-" + name + ".so"} {
		if path := l.search(env, file); path != "" {
			return l.library(path)
		}
	}
	return facts.Library{}
}

// nccl is the libnccl of a job, or those that a job would find.
func (l *looker) nccl(env map[string]string) facts.Fact[[]facts.Library] {
	if mapped, ok := l.node.Process.Mapped.Get(); ok {
		libs := slices.DeleteFunc(slices.Clone(mapped), func(f facts.Library) bool { return !strings.HasPrefix(filepath.Base(f.Path), "libnccl.so") })
		if len(libs) == 0 {
			return facts.Unknown[[]facts.Library]("the job has no libnccl.so mapped: it may be linked into a program")
		}
		return facts.Known(libs)
	}
	if l.PID != 0 {
		return facts.Unknown[[]facts.Library](l.node.Process.Mapped.Because())
	}
	if path := l.search(env, "libnccl.so.2"); path != "" {
		return facts.Known([]facts.Library{l.library(path)})
	}
	return facts.Unknown[[]facts.Library]("no libnccl.so.2 where the loader looks: name a job with --pid N")
}

// mentions reports whether a configuration file names an interface as a whole word.
func mentions(file []byte, netdev string) bool {
	for i := 0; ; {
		j := bytes.Index(file[i:], []byte(netdev))
		if j < 0 {
			return false
		}
		i += j
		end := i + len(netdev)
		if (i == 0 || !wordly(file[i-1])) && (end == len(file) || !wordly(file[end])) {
			return true
		}
		i = end
	}
}

func wordly(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c == '@'
}
