package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/report"
	"ncclmesh/transport/topology"
)

const reportLong = `Writes an archive for a bug report about this node: versions, ports, addresses,
counters, kernel and memory, the variables of NCCL and of launchers, NCCL's files,
the output of the other commands, and logs that you name.

Keys, tokens and passwords are left out, by their names, their looks, and wherever
the value of one in your environment occurs. With --redact-addresses so are IP and
hardware addresses, GUIDs and this node's name: each becomes a name, the same one
everywhere. The archive is looked through again before it is written, and not written
if anything is left. Look at it before you send it all the same.`

const reportExample = `  ncclmesh report --log nccl.log
  ncclmesh report --redact-addresses --output - | tar -tz`

// reportFlags are those of ncclmesh report.
type reportFlags struct {
	output    string
	logs      []string
	addresses bool
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
	r, err := redactor(variables, f.addresses)
	if err != nil {
		return failure{err}
	}
	now := time.Now()
	top := "ncclmesh-report-" + now.UTC().Format("20060102T150405Z")
	var archive bytes.Buffer
	items, err := report.Write(ctx, &archive, top, handshake.Build(), now, append(sources(sys, f, variables), more...), r)
	if err != nil {
		return failure{err}
	}
	for _, item := range items {
		if item.Error != "" {
			fmt.Fprintf(sys.stderr, "without %s: %s\n", item.Name, item.Error)
		}
	}
	if f.output == "-" {
		_, err = sys.stdout.Write(archive.Bytes())
	} else {
		path := f.output
		if path == "" {
			path = top + ".tar.gz"
		}
		if err = os.WriteFile(path, archive.Bytes(), 0o600); err == nil {
			fmt.Fprintf(sys.stdout, "%s: %d files; look at it before you send it\n", path, len(items)+1)
		}
	}
	if err != nil {
		return failure{err}
	}
	return nil
}

// redactor knows the secrets of the environment and the addresses of this node.
func redactor(variables jobenv.Variables, addresses bool) (*report.Redactor, error) {
	var secrets []string
	for _, v := range variables {
		if jobenv.Secret(v.Name) {
			secrets = append(secrets, v.Value)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var macs []net.HardwareAddr
	var addrs []netip.Addr
	for _, i := range interfaces {
		macs = append(macs, i.HardwareAddr)
		list, err := i.Addrs()
		if err != nil {
			continue // it has gone
		}
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				addrs = append(addrs, p.Addr())
			}
		}
	}
	return report.New(secrets, addresses, host, macs, addrs), nil
}

// ofJobs are the beginnings of the variables that matter to a job, and are shown.
var ofJobs = []string{"NCCL_", "LD_", "CUDA_", "NVIDIA_", "TORCH", "VLLM_", "SGLANG_", "GLOO_", "UCX_", "OMPI_", "PMI", "SLURM_", "RDMAV_", "MLX", "IBV_",
	"MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "NODE_RANK", "GO"}

// sources are what is taken from the node itself.
func sources(sys *system, f reportFlags, variables jobenv.Variables) []report.Source {
	at := func(path string) string { return filepath.Join(f.root, path) }
	list := []report.Source{
		{Name: "version.txt", Read: func(context.Context) ([]byte, error) {
			var b bytes.Buffer
			writeVersion(&b, sys.getenv)
			return b.Bytes(), nil
		}},
		{Name: "environment.txt", Read: func(context.Context) ([]byte, error) { return environment(variables), nil }},
		{Name: "node.json", Read: func(context.Context) ([]byte, error) { return discovered(at("sys")) }},
		report.Tree("infiniband.txt", at("sys/class/infiniband"), "*/fw_ver", "*/board_id", "*/hca_type", "*/node_guid", "*/sys_image_guid",
			"*/device/current_link_*", "*/device/max_link_*", "*/device/aer_dev_*", "*/ports/*/state", "*/ports/*/phys_state", "*/ports/*/rate",
			"*/ports/*/link_layer", "*/ports/*/counters/*", "*/ports/*/hw_counters/*"),
		report.Tree("net.txt", at("sys/class/net"), "*/mtu", "*/speed", "*/operstate", "*/carrier_changes", "*/phys_port_name", "*/statistics/*"),
	}
	for _, path := range []string{"etc/os-release", "proc/version", "proc/cmdline", "proc/meminfo", "sys/class/dmi/id/product_name"} {
		list = append(list, report.File("files/"+path, at(path)))
	}
	for i, path := range f.logs {
		list = append(list, report.File(fmt.Sprintf("logs/%d-%s", i+1, filepath.Base(path)), path))
	}
	return list
}

func environment(variables jobenv.Variables) []byte {
	var b bytes.Buffer
	for _, v := range variables {
		for _, prefix := range ofJobs {
			if strings.HasPrefix(v.Name, prefix) {
				fmt.Fprintf(&b, "%s=%s", v.Name, jobenv.Shown(v.Name, v.Value))
				if v.Origin != "" {
					fmt.Fprintf(&b, " # %s", v.Origin)
				}
				b.WriteByte('\n')
				break
			}
		}
	}
	return b.Bytes()
}

// discovered is the node as the plugin sees it.
func discovered(sysfs string) ([]byte, error) {
	node, err := topology.Discover(topology.Source{Sysfs: sysfs})
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(node, "", "  ")
}

// commandTime is how long another command may take.
const commandTime = time.Minute

// said are what the commands say that know more of the node, as far as this build has them.
func said(sys *system, root *cobra.Command) []report.Source {
	var list []report.Source
	for _, name := range []string{"doctor", "status"} {
		if c, _, err := root.Find([]string{name}); err != nil || c.Name() != name {
			continue
		}
		list = append(list, report.Source{Name: name + ".json", Read: func(ctx context.Context) ([]byte, error) {
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
