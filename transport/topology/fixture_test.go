package topology

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fixture unpacks testdata/<name>.txt into a sysfs tree and a snapshot of links. One line each:
//
//	[dir]            what follows is below dir
//	path: contents   a file
//	path -> target   a symbolic link
//	path !           an entry that cannot be read (a directory, as a test may run as root)
//	path -           nothing (for edits)
//	link …           a link: index, name, kind, then mtu N, parent N, mac M, up, carrier, loopback and addresses
//
// Edits are lines of the same kind; they replace the lines for the same path or link.
func fixture(t testing.TB, name string, edits ...string) Source {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	var links []Link
	type entry struct{ path, op, value string }
	var entries []entry
	dir := ""
	apply := func(line string) {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			dir = strings.Trim(line, "[]")
		case strings.HasPrefix(line, "link "):
			l := parseLink(t, line)
			links = slices.DeleteFunc(links, func(old Link) bool { return old.Index == l.Index })
			links = append(links, l)
		default:
			e := entry{path: line}
			for _, op := range []string{" -> ", ": ", " !", " -"} {
				if path, value, ok := strings.Cut(line, op); ok {
					e = entry{filepath.Join(dir, path), op, value}
					break
				}
			}
			if e.op == "" {
				t.Fatalf("%s: cannot read %q", name, line)
			}
			entries = slices.DeleteFunc(entries, func(old entry) bool { return old.path == e.path })
			entries = append(entries, e)
		}
	}
	for s := bufio.NewScanner(strings.NewReader(string(b))); s.Scan(); {
		apply(s.Text())
	}
	dir = ""
	for _, e := range edits {
		apply(e)
	}
	for _, e := range entries {
		path := filepath.Join(root, e.path)
		if e.op == " -" {
			continue
		}
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case e.op == " -> ":
			err = os.Symlink(e.value, path)
		case e.op == ": ":
			err = os.WriteFile(path, []byte(e.value+"\n"), 0o644)
		default:
			err = os.Mkdir(path, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Source{Sysfs: root, Links: func() ([]Link, error) { return slices.Clone(links), nil }}
}

func parseLink(t testing.TB, line string) Link {
	t.Helper()
	f := strings.Fields(line)
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	l := Link{Index: number(f[1]), Name: f[2], Kind: f[3]}
	for i := 4; i < len(f); i++ {
		switch f[i] {
		case "up":
			l.Up = true
		case "carrier":
			l.Carrier = true
		case "loopback":
			l.Loopback = true
		case "mtu":
			i++
			l.MTU = number(f[i])
		case "parent":
			i++
			l.Parent = number(f[i])
		case "mac":
			i++
			mac, err := net.ParseMAC(f[i])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			l.MAC = [6]byte(mac)
		default:
			l.Addrs = append(l.Addrs, netip.MustParsePrefix(f[i]))
		}
	}
	return l
}

// discover runs Discover on a fixture.
func discover(t testing.TB, name string, edits ...string) *Node {
	t.Helper()
	src := fixture(t, name, edits...)
	n, err := Discover(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, ports := range [][]Port{n.Ports, n.Plain} {
		for i := range ports {
			if p := &ports[i]; p.PCIPath != "" {
				rel, err := filepath.Rel(src.Sysfs, p.PCIPath)
				if err != nil {
					t.Fatal(err)
				}
				p.PCIPath = "/sys/" + rel
			}
		}
	}
	return n
}

func summaries(ports []Port, pol GIDPolicy) []string {
	var s []string
	for i := range ports {
		s = append(s, ports[i].Summary(pol))
	}
	return s
}
