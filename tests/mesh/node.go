package mesh

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// node names this process's host, brings its interfaces up and becomes the
// command.
func node() error {
	var s setup
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	if err := unix.Sethostname([]byte(s.Host)); err != nil {
		return fmt.Errorf("name the host %s: %w", s.Host, err)
	}
	if err := privateMounts(); err != nil {
		return err
	}
	// A sysfs of this network namespace, with its interfaces.
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	for _, i := range s.Ifaces {
		l, err := netlink.LinkByName(i.Name)
		if err != nil {
			return fmt.Errorf("find %s: %w", i.Name, err)
		}
		addr, err := netlink.ParseAddr(i.Addr)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("give %s the address %s: %w", i.Name, i.Addr, err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("bring %s up: %w", i.Name, err)
		}
	}
	program, err := exec.LookPath(s.Command[0])
	if err != nil {
		return err
	}
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, roleVariable+"=") {
			env = append(env, kv)
		}
	}
	return fmt.Errorf("start %s: %w", program, unix.Exec(program, s.Command, env))
}
