package jobenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/library"
	"ncclmesh/transport/topology"
)

// The environment is before the user's file, and that before the node's, as with NCCL.
func TestRead(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	node := write("etc/nccl.conf", "# of the image\nNCCL_ALGO=Ring\nNCCL_PROTO=LL\nNCCL_DEBUG=INFO\n\nnonsense\n=x\n")
	user := write("home/.nccl.conf", "NCCL_PROTO=Simple\n")
	other := write("other.conf", "NCCL_PROTO=LL128\n")
	home := Variable{"HOME", filepath.Join(root, "home"), ""}
	tests := []struct {
		name    string
		environ []string
		want    Variables
		err     string
	}{
		{"all", []string{"HOME=" + home.Value, "NCCL_DEBUG=WARN"},
			Variables{home, {"NCCL_ALGO", "Ring", node}, {"NCCL_DEBUG", "WARN", ""}, {"NCCL_PROTO", "Simple", user}}, ""},
		{"the last of the environment", []string{"A=1", "A=2", "B"},
			Variables{{"A", "2", ""}, {"NCCL_ALGO", "Ring", node}, {"NCCL_DEBUG", "INFO", node}, {"NCCL_PROTO", "LL", node}}, ""},
		{"a file that is named", []string{"HOME=" + home.Value, "NCCL_CONF_FILE=" + other},
			Variables{home, {"NCCL_ALGO", "Ring", node}, {"NCCL_CONF_FILE", other, ""}, {"NCCL_DEBUG", "INFO", node}, {"NCCL_PROTO", "LL128", other}}, ""},
		{"one that cannot be read", []string{"NCCL_CONF_FILE=" + root},
			Variables{{"NCCL_ALGO", "Ring", node}, {"NCCL_CONF_FILE", root, ""}, {"NCCL_DEBUG", "INFO", node}, {"NCCL_PROTO", "LL", node}}, "is a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Read(tt.environ, root)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (tt.err != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func TestAgainst(t *testing.T) {
	node := Node{
		Interfaces: []string{"lo", "enP7s7", "enp1s0f0np0"},
		Ports:      []topology.Port{{Device: "rocep1s0f0", Num: 1, Netdev: "enp1s0f0np0"}, {Device: "rocep1s0f1", Num: 1}},
		Exists:     func(path string) bool { return strings.HasPrefix(path, "/here") },
		Identify: func(path string) error {
			if path == "/here/libnccl-net-mesh.so" {
				return nil
			}
			return library.ErrOther
		},
	}
	tests := []struct {
		name, value string
		severity    string // "" for none
		why         string
	}{
		{"NCCL_NET_PLUGIN", "mesh", "", ""},
		{"NCCL_NET_PLUGIN", "ofi,mesh", "", ""},
		{"NCCL_NET_PLUGIN", "libnccl-net-mesh.so", "", ""},
		{"NCCL_NET_PLUGIN", "/here/libnccl-net-mesh.so", "", ""},
		{"NCCL_NET_PLUGIN", "none", Blocks, "no plugin at all"},
		{"NCCL_NET_PLUGIN", "ofi", Blocks, "ofi is another plugin"},
		{"NCCL_NET_PLUGIN", "/opt/libnccl-net-mesh.so", Blocks, "not this project's"},
		{"NCCL_NET_PLUGIN", "", Blocks, "libnccl-net.so"},
		{"NCCL_NET", "Mesh", "", ""},
		{"NCCL_NET", "", "", ""},
		{"NCCL_NET", "IB", Blocks, "no other"},
		{"NCCL_TUNER_PLUGIN", "mesh", "", ""},
		{"NCCL_TUNER_PLUGIN", "/x/libnccl-tuner.so", Hinders, "another tuner"},
		{"NCCL_IB_GID_INDEX", "-1", "", ""},
		{"NCCL_IB_GID_INDEX", "", Idle, "NCCL's own transport for 0"},
		{"NCCL_IB_GID_INDEX", "3", Hinders, "reboots"},
		{"NCCL_SOCKET_IFNAME", "enP7", "", ""},
		{"NCCL_SOCKET_IFNAME", "eth0,enP7s7", "", ""},
		{"NCCL_SOCKET_IFNAME", "^docker0", "", ""},
		{"NCCL_SOCKET_IFNAME", "eth0", Blocks, "no such interface (it has lo, enP7s7"},
		{"NCCL_SOCKET_IFNAME", "=enP7", Blocks, "no such interface"},
		{"NCCL_MESH_IFNAME", "eth1", Blocks, "TCP lanes"},
		{"NCCL_IB_HCA", "^mlx5_3", "", ""},
		{"NCCL_IB_HCA", "rocep1s0f0", Hinders, "only these ports"},
		{"NCCL_IB_HCA", "=rocep1s0f0:1,rocep1s0f1", Hinders, "only these ports"},
		{"NCCL_IB_HCA", "mlx5_0,mlx5_1", Blocks, "none of the RDMA ports of this node (it has rocep1s0f0:1 (enp1s0f0np0), rocep1s0f1:1)"},
		{"NCCL_IB_HCA", "=rocep1s0f", Blocks, "none of the RDMA ports of this node"},
		{"NCCL_IB_HCA", "rocep1s0f0:2", Blocks, "none of the RDMA ports of this node"},
		{"NCCL_IB_HCA", "^rocep1s0f", Blocks, "none of the RDMA ports of this node"},
		{"NCCL_IB_HCA", "rocep1s0f0,rocep1s1f0", Hinders, "rocep1s1f0 is none of the RDMA ports of this node (it has rocep1s0f0:1"},
		{"NCCL_IB_HCA", "a b", Blocks, "blanks are part of the value"},
		{"NCCL_IB_DISABLE", "0", "", ""},
		{"NCCL_IB_DISABLE", "1", Idle, "switch"},
		{"NCCL_ALGO", "Ring", Hinders, "algorithm"},
		{"NCCL_PROTO", "", "", ""},
		{"NCCL_PROTO", "LL", Hinders, "protocol"},
		{"NCCL_MAX_NCHANNELS", "8", Hinders, "channels"},
		{"NCCL_IB_MERGE_NICS", "0", Idle, "no effect here"},
		{"NCCL_DEBUG_FILE", "/here/nccl.%h.log", "", ""},
		{"NCCL_DEBUG_FILE", "/logs/nccl.log", Hinders, "are lost"},
		{"LD_PRELOAD", "/here/libnccl.so.2 libfoo.so", "", ""},
		{"LD_PRELOAD", "/here/a.so:/opt/libnccl.so.2", Hinders, "/opt/libnccl.so.2 does not exist here"},
		{"VLLM_NCCL_SO_PATH", "/here/libnccl.so.2", "", ""},
		{"VLLM_NCCL_SO_PATH", "/opt/libnccl.so.2", Blocks, "vLLM"},
		{"NCCL_MESH_TRANSPORT", "tcp", "", ""},
		{"NCCL_MESH_TRANSPORT", "udp", Blocks, "want auto, rdma or tcp"},
		{"NCCL_MESH_GID_INDEX", "x", Blocks, "want a whole number"},
		{"NCCL_MESH_STRIPES", "1", Idle, "did you mean"},
		{"NCCL_IB_RETRY_CNT", "9", Blocks, "from 0 to 7"},
		{"PATH", "/bin", "", ""},
	}
	tried := map[string]bool{}
	for _, tt := range tests {
		tried[tt.name] = true
		v := Variable{tt.name, tt.value, "/etc/nccl.conf"}
		list := Against(Variables{v}, node)
		switch {
		case tt.severity == "" && len(list) > 0:
			t.Errorf("%s=%s: %+v, want nothing", tt.name, tt.value, list)
		case tt.severity == "":
		case len(list) != 1 || list[0].Variable != v || list[0].Severity != tt.severity || !strings.Contains(list[0].Why, tt.why) || list[0].Do == "":
			t.Errorf("%s=%s: %+v, want that it %s, because %q", tt.name, tt.value, list, tt.severity, tt.why)
		}
	}
	for name := range rules {
		if !tried[name] && !slices.Contains([]string{"NCCL_MIN_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_IB_SUBNET_AWARE_ROUTING"}, name) {
			t.Errorf("the rule of %s is not tried", name)
		}
	}
	if list := Against(Variables{{"NCCL_IB_HCA", "mlx5_0", ""}, {"NCCL_MESH_TRANSPORT", "tcp", ""}}, node); len(list) != 1 || list[0].Severity != Hinders {
		t.Errorf("devices that are not there, which nothing needs over TCP: %+v", list)
	}
	var order []string
	for _, o := range Against(Variables{{"NCCL_ALGO", "Ring", ""}, {"NCCL_IB_DISABLE", "1", ""}, {"NCCL_NET", "IB", ""}}, node) {
		order = append(order, o.Name)
	}
	if diff := cmp.Diff([]string{"NCCL_NET", "NCCL_ALGO", "NCCL_IB_DISABLE"}, order); diff != "" {
		t.Errorf("the worst first (-want +got):\n%s", diff)
	}
}

func TestExports(t *testing.T) {
	bad := library.Library{Path: "/usr/lib/libnccl-net-mesh.so", ByName: true, Err: library.ErrOther}
	tests := []struct {
		name  string
		found []library.Library
		want  string
		err   string
	}{
		{"by its name", []library.Library{{Path: "/usr/lib/x", ByName: true}}, "mesh", ""},
		{"beside the command", []library.Library{{Path: "/src/build/x"}}, "/src/build/x", ""},
		{"behind another's", []library.Library{bad, {Path: "/usr/lib64/x", ByName: true}}, "/usr/lib64/x", ""},
		{"another's only", []library.Library{bad}, "", library.ErrOther.Error()},
		{"none", nil, "", "install the package"},
	}
	for _, tt := range tests {
		v, err := Exports(tt.found)
		if got := v.Getenv("NCCL_NET_PLUGIN"); got != tt.want || (tt.err != "") != (err != nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v; want %q, %q", tt.name, got, err, tt.want, tt.err)
		}
	}
	after := Variables{{"A", "1", ""}}.Over(Variables{{"A", "0", "f"}, {"B", "2", "f"}})
	if diff := cmp.Diff(Variables{{"A", "1", ""}, {"B", "2", "f"}}, after); diff != "" {
		t.Errorf("over what was there (-want +got):\n%s", diff)
	}
}

// A shell reads what is quoted as it was.
func TestQuote(t *testing.T) {
	for _, value := range []string{"", "mesh", "/a b/c", "it's", "$(reboot)", "`x`;\n\"y\"", "~", "a*"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(value)).Output()
		if string(out) != value || err != nil {
			t.Errorf("%q: the shell reads %q, %v", value, out, err)
		}
	}
}

func TestShown(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"HF_TOKEN", "x", "(set)"}, {"NCCL_MESH_KEY", "x", "(set)"}, {"DB_PASS", "x", "(set)"}, {"MYSQL_PWD", "x", "(set)"},
		{"HF_TOKEN", "", ""}, {"NCCL_NET", "mesh", "mesh"}, {"NCCL_IB_PKEY", "1", "1"}, {"TOKENIZERS_PARALLELISM", "false", "false"}, {"PWD", "/", "/"},
	} {
		if got := Shown(tt.name, tt.value); got != tt.want {
			t.Errorf("%s=%s is shown as %q, want %q", tt.name, tt.value, got, tt.want)
		}
	}
}

func TestForSupport(t *testing.T) {
	for _, name := range []string{"NCCL_DEBUG", "NCCL_MESH_KEY", "NCCL_IB_GID_INDX", "RANK", "MASTER_ADDR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
		"OMPI_COMM_WORLD_RANK", "OMPI_MCA_btl_tcp_if_include", "SLURM_JOB_NODELIST", "TORCH_NCCL_BLOCKING_WAIT", "GODEBUG", "NCCLMESH_SSH"} {
		if !ForSupport(name) {
			t.Errorf("%s is not shown", name)
		}
	}
	for _, name := range []string{"PATH", "HOME", "USER", "MYSQL_PWD", "SSHPASS", "DB_PASS", "GOOGLE_API_KEY", "GOPRIVATE", "SLURM_JWT", "VLLM_API_KEY",
		"TORCH_HUB_TOKEN", "LOCAL_PASSWORD", "OMPI_SECRET", "CUDA_LICENSE", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "MASTER_ADDRESS", "RANK_TOKEN"} {
		if ForSupport(name) {
			t.Errorf("%s is shown", name)
		}
	}
	for _, s := range config.Settings(func(string) string { return "" }) {
		if !ForSupport(s.Name) {
			t.Errorf("%s, a setting of the plugin, is not shown", s.Name)
		}
	}
	for name := range rules {
		if !ForSupport(name) {
			t.Errorf("%s, which may work against the plugin, is not shown", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("NCCL_ALGO=Ring\n# x\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "nccl.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := Read([]string{"NCCL_CONF_FILE=" + path}, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range v {
			if x.Name == "" || strings.Contains(x.Name, "=") || i > 0 && v[i-1].Name >= x.Name {
				t.Errorf("%q: %q after %q", text, x.Name, v[max(i, 1)-1].Name)
			}
		}
	})
}
