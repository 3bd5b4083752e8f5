package topology

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysfs is the root of a sysfs tree, after the symbolic links in it were resolved.
type sysfs string

func openSysfs(root string) (sysfs, error) {
	real, err := filepath.EvalSymlinks(root)
	return sysfs(real), err
}

// read returns the content of a file without the newline. Reading an entry that is not in use fails with EINVAL;
// callers treat every error as a missing entry. It uses plain system calls because a GID table alone has a thousand
// files. One read is enough, because the kernel returns a whole attribute, at most a page, at once.
func (s sysfs) read(elem ...string) (string, error) {
	name := s.path(elem...)
	fd, err := uninterrupted(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) })
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var page [4096]byte
	n, err := uninterrupted(func() (int, error) { return unix.Read(fd, page[:]) })
	if err != nil {
		return "", &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return strings.TrimSpace(string(page[:n])), nil
}

func uninterrupted(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// text returns the content of a file that may be missing, or "".
func (s sysfs) text(elem ...string) string {
	t, _ := s.read(elem...)
	return t
}

// exists reports whether a file or a directory exists.
func (s sysfs) exists(elem ...string) bool {
	_, err := os.Stat(s.path(elem...))
	return err == nil
}

// number reads a decimal number, or a hexadecimal one with a 0x prefix.
func (s sysfs) number(bits int, elem ...string) (int64, bool) {
	n, err := strconv.ParseInt(s.text(elem...), 0, bits)
	return n, err == nil
}

// guid reads a GUID, and returns 0 if there is none.
func (s sysfs) guid(elem ...string) uint64 {
	g, _ := parseGUID(s.text(elem...))
	return g
}

// list returns the names in a directory, sorted.
func (s sysfs) list(elem ...string) ([]string, error) {
	entries, err := os.ReadDir(s.path(elem...))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (s sysfs) path(elem ...string) string {
	return filepath.Join(string(s), filepath.Join(elem...))
}

// pciFunction returns the real path of the PCI function that a class device belongs to, or "" if there is none. The
// device may be a child of the function, on an auxiliary bus or on virtio.
func (s sysfs) pciFunction(elem ...string) string {
	real, err := filepath.EvalSymlinks(s.path(append(elem, "device")...))
	if err != nil {
		return ""
	}
	for dir := real; s.contains(dir); dir = filepath.Dir(dir) {
		if isPCIAddr(filepath.Base(dir)) {
			return dir
		}
	}
	return ""
}

// pciMbps returns the speed of the slowest PCIe link between a function and the root in Mb/s, or 0 if none is known. It
// ignores bridges that do not report a speed.
func (s sysfs) pciMbps(function string) int {
	slowest := 0
	for dir := function; s.contains(dir) && isPCIAddr(filepath.Base(dir)); dir = filepath.Dir(dir) {
		rel, _ := filepath.Rel(string(s), dir)
		mbps, err := parsePCILink(s.text(rel, "current_link_speed"), s.text(rel, "current_link_width"))
		if err == nil && (slowest == 0 || mbps < slowest) {
			slowest = mbps
		}
	}
	return slowest
}

// contains reports whether dir is below the root. In a broken tree a symbolic link may lead outside.
func (s sysfs) contains(dir string) bool {
	return len(dir) > len(s) && strings.HasPrefix(dir, strings.TrimSuffix(string(s), "/")+"/")
}

// numa returns the NUMA node of a PCI function, or -1 if it is unknown.
func (s sysfs) numa(function string) int {
	rel, err := filepath.Rel(string(s), function)
	if function == "" || err != nil {
		return -1
	}
	if n, ok := s.number(32, rel, "numa_node"); ok && n >= 0 {
		return int(n)
	}
	return -1
}
