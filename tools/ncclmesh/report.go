package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/handshake"
	"ncclmesh/printable"
	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/report"
	"ncclmesh/tools/ncclmesh/secret"
)

const reportLong = `Writes an archive for a bug report about this node: versions, ports, addresses,
counters, kernel and memory, the variables that NCCL, the plugin, launchers and CUDA
read, NCCL's files, the output of the other commands, and logs that you name.

All other variables are left out, with their names. Keys, tokens and passwords are
replaced by (redacted): after a name such as DB_PASS or an option such as --password,
in URLs and headers, in the forms that their issuers give them, and wherever the value
of one that is in your environment occurs.

With --redact-addresses so are IP and hardware addresses, GUIDs, GIDs, addresses in
host names, and this node's name: each becomes a name, the same one everywhere.

A table of all files, with what was taken out of them, is printed before the archive
is written. Nothing is written if a secret of your environment or, with
--redact-addresses, an address of this node is left. Look at the archive before you
send it all the same: a password without a name cannot be recognised.`

const reportExample = `  ncclmesh report --list --log nccl.log
  ncclmesh report --log nccl.log
  ncclmesh report --redact-addresses --output - | tar -tz`

// reportFlags are those of ncclmesh report.
type reportFlags struct {
	output    string
	logs      []string
	addresses bool
	list      bool
	root      string // "/" but in tests
}

func reportCommand(sys *system) *cobra.Command {
	f := reportFlags{root: "/"}
	c := &cobra.Command{
		Use:     "report",
		Short:   "Write an archive for a bug report, without secrets",
		Long:    reportLong,
		Example: reportExample,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runReport(c.Context(), sys, f, said(sys, c.Root()))
		},
	}
	c.Flags().StringVar(&f.output, "output", "", "write `FILE`; - is standard output (default ncclmesh-report-TIME.tar.gz)")
	c.Flags().StringArrayVar(&f.logs, "log", nil, "add this `FILE`, as NCCL_DEBUG_FILE has made it; its end if it is long")
	c.Flags().BoolVar(&f.addresses, "redact-addresses", false, "leave out addresses and this node's name too")
	c.Flags().BoolVar(&f.list, "list", false, "print what the archive would hold, and write none")
	return c
}

func runReport(ctx context.Context, sys *system, f reportFlags, more []report.Source) error {
	for _, path := range f.logs {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return fmt.Errorf("--log %s: want a file (%v)", path, err)
		}
	}
	variables, err := jobenv.Read(sys.environ, f.root)
	if err != nil {
		fmt.Fprintf(sys.stderr, "ncclmesh: %v\n", err)
	}
	node, err := thisNodesAddresses(f.root)
	if err != nil {
		return failure{err}
	}
	r := report.New(secrets(variables), f.addresses, node)
	now := time.Now()
	top := "ncclmesh-report-" + now.UTC().Format("20060102T150405Z")
	p := newProgress(sys, "gathering")
	archive, err := report.Gather(ctx, top, handshake.Build(), now, append(sources(sys, f, variables), more...), r)
	p.end()
	if err != nil {
		return failure{err}
	}
	if err := output(sys, f, archive, top+".tar.gz"); err != nil {
		return failure{err}
	}
	return nil
}

// output lists an archive and writes it, to a file of the given name unless the flags name another.
func output(sys *system, f reportFlags, archive *report.Archive, name string) error {
	if f.list {
		return archive.List(sys.stdout)
	}
	if err := archive.List(sys.stderr); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := archive.Write(&b); err != nil {
		return err
	}
	if f.output == "-" {
		_, err := sys.stdout.Write(b.Bytes())
		return err
	}
	path := cmp.Or(f.output, name)
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(sys.stdout, "%s: %d files; look at it before you send it\n", path, archive.Files())
	return nil
}

// secrets are the values in an environment that are not to be in a report: those of variables that have the name of a secret,
// and those that a variable's value has in it, as a URL does.
func secrets(variables jobenv.Variables) []string {
	var list []string
	for _, v := range variables {
		if _, err := os.Stat(v.Value); err == nil { // the secret is in that file
			continue
		}
		if secret.Name(v.Name) {
			list = append(list, v.Value)
		}
		secret.Redact([]byte(v.Name+"="+v.Value), func(_ string, value []byte) {
			_, password, _ := strings.Cut(string(value), ":") // of a user
			list = append(list, string(value), password)
		})
	}
	return list
}

// sources are what is taken from the node itself.
func sources(sys *system, f reportFlags, variables jobenv.Variables) []report.Source {
	at := func(path string) string { return filepath.Join(f.root, path) }
	list := []report.Source{
		{Name: "version.txt", Holds: "builds of the command and the plugin", Read: func(context.Context) ([]byte, error) {
			var b bytes.Buffer
			writeVersion(&b, sys.getenv)
			return b.Bytes(), nil
		}},
		{Name: "environment.txt", Holds: "variables that NCCL, launchers and CUDA read", Read: func(context.Context) ([]byte, error) { return environment(variables), nil }},
		{Name: "node.json", Holds: "ports, interfaces and addresses, as the plugin finds them", Read: func(context.Context) ([]byte, error) { return discovered(at("sys")) }},
		report.Tree("infiniband.txt", "firmware, states and counters of RDMA devices", at("sys/class/infiniband"), "*/fw_ver", "*/board_id", "*/hca_type", "*/node_guid", "*/sys_image_guid",
			"*/device/current_link_*", "*/device/max_link_*", "*/device/aer_dev_*", "*/ports/*/state", "*/ports/*/phys_state", "*/ports/*/rate",
			"*/ports/*/link_layer", "*/ports/*/counters/*", "*/ports/*/hw_counters/*"),
		report.Tree("net.txt", "states and counters of network interfaces", at("sys/class/net"), "*/mtu", "*/speed", "*/operstate", "*/carrier_changes", "*/phys_port_name", "*/statistics/*"),
	}
	for _, file := range []struct{ path, holds string }{{"etc/os-release", "the distribution"}, {"proc/version", "the kernel"},
		{"proc/cmdline", "options of the kernel"}, {"proc/meminfo", "memory"}, {"sys/class/dmi/id/product_name", "the machine's model"}} {
		list = append(list, report.File("files/"+file.path, file.holds, at(file.path)))
	}
	for i, path := range f.logs {
		list = append(list, report.File(fmt.Sprintf("logs/%d-%s", i+1, filepath.Base(path)), "a log that you named", path))
	}
	return list
}

// environment are the variables that matter to a job, and how many others there are.
func environment(variables jobenv.Variables) []byte {
	var b bytes.Buffer
	others := 0
	for _, v := range variables {
		if !jobenv.ForSupport(v.Name) {
			others++
			continue
		}
		fmt.Fprintf(&b, "%s=%s", v.Name, printable.Line(jobenv.Shown(v.Name, v.Value), maxVariable))
		if v.Origin != "" {
			fmt.Fprintf(&b, " # %s", v.Origin)
		}
		b.WriteByte('\n')
	}
	if others > 0 {
		fmt.Fprintf(&b, "# and %d variables that are not shown\n", others)
	}
	return b.Bytes()
}

// maxVariable is how much of a variable is shown.
const maxVariable = 4096

// commandTime is how long another command may take.
const commandTime = time.Minute

// said are what the commands say that know more of the node, as far as this build has them.
func said(sys *system, root *cobra.Command) []report.Source {
	var list []report.Source
	for _, name := range []string{"doctor", "status"} {
		if c, _, err := root.Find([]string{name}); err != nil || c.Name() != name {
			continue
		}
		list = append(list, report.Source{Name: name + ".json", Holds: "the output of ncclmesh " + name + " --json", Read: func(ctx context.Context) ([]byte, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, commandTime)
			defer cancel()
			var stdout, stderr bytes.Buffer
			cmd := exec.CommandContext(ctx, self, name, "--json")
			cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = sys.environ, &stdout, &stderr, time.Second
			err = cmd.Run()
			if exited := (*exec.ExitError)(nil); errors.As(err, &exited) && exited.ExitCode() == statusFailed {
				err = nil // it has found something, which is what is wanted
			}
			if err != nil {
				err = fmt.Errorf("ncclmesh %s --json: %w: %s", name, err, bytes.TrimSpace(stderr.Bytes()))
			}
			return stdout.Bytes(), err
		}})
	}
	return list
}
