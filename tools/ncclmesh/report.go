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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/handshake"
	"ncclmesh/printable"
	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/report"
	"ncclmesh/tools/ncclmesh/secret"
)

const reportLong = `Writes an archive for a bug report about this node, with a page for a browser; with hosts
the page also has the faults, the cables and, with --bench, the rates between them.

The archive has versions, ports, addresses, counters, kernel and memory, the variables
that NCCL, the plugin, launchers and CUDA read, NCCL's files, the output of the other
commands, and logs that you name.

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
  ncclmesh report node-a node-b --bench --html mesh.html
  ncclmesh report --redact-addresses --output - | tar -tz`

// reportFlags are those of ncclmesh report.
type reportFlags struct {
	output    string
	logs      []string
	addresses bool
	list      bool
	html      string
	bench     bool
	hosts     hostFlags
	root      string // "/" but in tests
}

func reportCommand(sys *system) *cobra.Command {
	f := reportFlags{root: "/"}
	c := &cobra.Command{
		Use:     "report [HOST...]",
		Short:   "Write an archive for a bug report, without secrets",
		Long:    reportLong,
		Example: reportExample,
		RunE: func(c *cobra.Command, hosts []string) error {
			if f.bench && len(hosts) == 0 {
				return errors.New("--bench measures cables between nodes, and no host is named")
			}
			return runReport(c.Context(), sys, f, said(c.Context(), sys, f, hosts))
		},
	}
	c.Flags().StringVar(&f.output, "output", "", "write `FILE`; - is standard output (default ncclmesh-report-TIME.tar.gz)")
	c.Flags().StringArrayVar(&f.logs, "log", nil, "add this `FILE`, as NCCL_DEBUG_FILE has made it; its end if it is long")
	c.Flags().BoolVar(&f.addresses, "redact-addresses", false, "leave out addresses and this node's name too")
	c.Flags().StringVar(&f.html, "html", "", "write the archive's page into `FILE` too; with --list it alone is written")
	c.Flags().BoolVar(&f.bench, "bench", false, "also measure every cable between the hosts, unless a job runs")
	f.hosts.add(sys, c)
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
	if f.html != "" {
		page, ok := archive.Text(pageName)
		if !ok {
			return failure{errors.New("--html: the page could not be made: see the table of files")}
		}
		if err := os.WriteFile(f.html, page, 0o600); err != nil {
			return failure{fmt.Errorf("--html: %w", err)}
		}
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

// said are what the commands say that know more of the node, or of the hosts, and a page of that for people.
func said(ctx context.Context, sys *system, f reportFlags, hosts []string) []report.Source {
	ask := func(args ...string) answer {
		return sync.OnceValues(func() ([]byte, error) { return askSelf(ctx, sys, append(args, "--json")) })
	}
	of := slices.Clone(hosts)
	if len(hosts) > 0 {
		of = append(of, f.hosts.args()...)
	}
	checks := append([]string{"doctor"}, of...)
	if f.bench {
		checks = append(checks, "--bench")
	}
	findings := ask(checks...)
	list := []report.Source{
		findings.source("doctor.json", "the output of ncclmesh doctor --json"),
		ask("status").source("status.json", "the output of ncclmesh status --json"),
	}
	var cables, rates answer
	if len(hosts) > 0 {
		cables = ask(append([]string{"topo"}, of...)...)
		list = append(list, cables.source("topo.json", "the output of ncclmesh topo --json"))
	}
	if f.bench {
		rates = ask(append([]string{"bench", "link"}, of...)...)
		list = append(list, rates.source("bench-link.json", "the output of ncclmesh bench link --json"))
	}
	return append(list, report.Source{Name: pageName, Holds: "findings and pictures, for a browser",
		Read: func(context.Context) ([]byte, error) { return pageOf(time.Now(), findings, cables, rates) }})
}

// askSelf runs this program with other arguments, and returns what it has written. That it has found something is no error.
func askSelf(ctx context.Context, sys *system, args []string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = sys.environ, &stdout, &stderr, time.Second
	err = cmd.Run()
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) && exited.ExitCode() == statusFailed && stdout.Len() > 0 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("ncclmesh %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), err
}
