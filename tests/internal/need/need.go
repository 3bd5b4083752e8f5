package need

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// VerbsHeader is what C needs to use libibverbs.
const VerbsHeader = "/usr/include/infiniband/verbs.h"

// packages are those of Debian and Ubuntu, where they are not named like what they bring.
var packages = map[string]string{
	"aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
	"cc":                    "gcc",
	"flock":                 "util-linux",
	"ib_read_bw":            "perftest",
	"ib_send_bw":            "perftest",
	"ib_write_bw":           "perftest",
	"ib_write_lat":          "perftest",
	"ibv_devinfo":           "ibverbs-utils",
	"ibv_rc_pingpong":       "ibverbs-utils",
	"ip":                    "iproute2",
	"netplan":               "netplan.io",
	"nm":                    "binutils",
	"qemu-aarch64-static":   "qemu-user-static",
	"strip":                 "binutils",
	VerbsHeader:             "libibverbs-dev",
}

// Missing says what is missing of programs, and of files with an absolute path; nil
// when nothing is.
func Missing(names ...string) error {
	var missing, install []string
	for _, name := range names {
		err := error(nil)
		if filepath.IsAbs(name) {
			_, err = os.Stat(name)
		} else {
			_, err = exec.LookPath(name)
		}
		if err == nil {
			continue
		}
		pkg := packages[name]
		if pkg == "" {
			pkg = name
		}
		missing, install = append(missing, name), append(install, pkg)
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(install)
	return fmt.Errorf("not installed: %s; apt-get install %s", strings.Join(missing, ", "), strings.Join(slices.Compact(install), " "))
}
