package topology

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestMbps(t *testing.T) {
	tests := []struct{ link, pci, want int }{
		{200000, 126030, 126030}, {100000, 252061, 100000}, {200000, 0, 200000}, {0, 63015, 63015}, {0, 0, DefaultMbps}, {-1, -1, DefaultMbps},
	}
	for _, tt := range tests {
		p := Port{LinkMbps: tt.link, PCIMbps: tt.pci}
		if got := p.Mbps(); got != tt.want {
			t.Errorf("link %d, PCIe %d: %d, want %d", tt.link, tt.pci, got, tt.want)
		}
	}
}

func TestAggregate(t *testing.T) {
	const first = "/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0"
	state := func(devices ...string) []string { // cables pulled
		var edits []string
		for _, d := range devices {
			domain := "0000"
			if strings.HasPrefix(d, "roceP2") {
				domain = "0002"
			}
			function := "/" + domain + ":01:00." + d[len(d)-1:]
			edits = append(edits, "devices/pci"+domain+":00/"+domain+":00:00.0"+function+"/infiniband/"+d+"/ports/1/state: 1: DOWN")
		}
		return edits
	}
	tests := []struct {
		name, fixture string
		edits         []string
		hca           string
		want          Device
	}{
		{"GB10, two cables: two x4 slots", "gb10", nil, "", Device{Mbps: 252060, PCIPath: first, GUID: 0x4cbb470000000103}},
		{"GB10, one cable: the cable", "gb10", state("rocep1s0f1", "roceP2p1s0f1"), "", Device{Mbps: 200000, PCIPath: first, GUID: 0x4cbb470000000103}},
		{"GB10, the other cable", "gb10", state("rocep1s0f0", "roceP2p1s0f0"), "",
			Device{Mbps: 200000, PCIPath: "/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.1", GUID: 0x4cbb470000000103}},
		{"GB10, both functions of one slot share it", "gb10", nil, "rocep", Device{Mbps: 126030, PCIPath: first, GUID: 0x4cbb470000000103}},
		{"GB10, one half", "gb10", nil, "=rocep1s0f0", Device{Mbps: 126030, PCIPath: first, GUID: 0x4cbb470000000103}},
		{"GB10, no cable: what it could", "gb10", state("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1"), "",
			Device{Mbps: 252060, PCIPath: first, GUID: 0x4cbb470000000103}},
		{"GB10, a slot that trained at half its width", "gb10", []string{"devices/pci0002:00/0002:00:00.0/current_link_width: 2"}, "",
			Device{Mbps: 126030 + 63015, PCIPath: first, GUID: 0x4cbb470000000103}},
		{"a slower adapter first: the path of the fastest", "infiniband", nil, "",
			Device{Mbps: 40000 + 126030, PCIPath: "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0", GUID: 0x0002c90300000503}},
		{"Soft-RoCE", "rxe", nil, "", Device{Mbps: 5000, GUID: 0x505400fffe000a64}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseHCA(tt.hca)
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Name = "mesh0"
			if d := cmp.Diff(tt.want, Aggregate(f.Select(discover(t, tt.fixture, tt.edits...).Ports)), besidesSpeed); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// besidesSpeed removes the fields that TestPayload checks.
var besidesSpeed = cmpopts.IgnoreFields(Device{}, "Payload", "Slots")

// The data rates of slots and cables.
func TestPayload(t *testing.T) {
	const first, second = "/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.", "/sys/devices/pci0002:00/0002:00:00.0/0002:01:00."
	tests := []struct {
		name, hca string
		edits     []string
		payload   int
		slots     []Slot
	}{
		{"two slots", "", nil, 2 * 111662, []Slot{{first + "0", 0}, {second + "0", 0}}},
		{"both functions of a slot", "rocep", nil, 111662, []Slot{{first + "0", 0}}},
		{"one cable", "=rocep1s0f1,roceP2p1s0f1", nil, 196000, []Slot{{first + "1", 0}, {second + "1", 0}}},
		{"another NUMA node", "", []string{"devices/pci0002:00/0002:00:00.0/0002:01:00.0/numa_node: 1"}, 2 * 111662, []Slot{{first + "0", 0}, {second + "0", 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseHCA(tt.hca)
			if err != nil {
				t.Fatal(err)
			}
			got := Aggregate(f.Select(discover(t, "gb10", tt.edits...).Ports))
			if d := cmp.Diff(Device{Payload: tt.payload, Slots: tt.slots}, Device{Payload: got.Payload, Slots: got.Slots}); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestPeerMemory(t *testing.T) {
	tests := map[string]bool{
		"":                                      false,
		"kernel/mm/memory_peers/nv_mem/version": true,
		"kernel/mm/memory_peers/nv_mem_nc/version": true,
		"module/nvidia_peermem/version":            true,
		"module/nvidia/version":                    false,
		"kernel/mm/memory_peers/amdkfd/version":    false,
	}
	for file, want := range tests {
		root := t.TempDir()
		if file != "" {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("1\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := PeerMemory(root); got != want {
			t.Errorf("with %q: %t, want %t", file, got, want)
		}
	}
	if PeerMemory(filepath.Join(t.TempDir(), "none")) {
		t.Error("without sysfs there is nvidia-peermem")
	}
}

func TestGPUs(t *testing.T) {
	root := t.TempDir()
	add := func(path, vendor, class, numa string) {
		dir := filepath.Join(root, "devices", path)
		link := filepath.Join(root, "bus/pci/devices", filepath.Base(path))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(dir, link)); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"vendor": vendor, "class": class, "numa_node": numa} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := GPUs(root); got != nil {
		t.Errorf("an empty tree has %v", got)
	}
	add("pci000f:00/000f:00:00.0/000f:01:00.0", "0x10de", "0x030000", "-1")
	add("pci0000:00/0000:00:02.0", "0x8086", "0x030000", "0") // another vendor's display
	add("pci0000:00/0000:00:00.0", "0x10de", "0x060400", "0") // a bridge
	want := []Slot{{filepath.Join(root, "devices/pci000f:00/000f:00:00.0/000f:01:00.0"), -1}}
	if d := cmp.Diff(want, GPUs(root)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for other, apart := range map[string]bool{
		"/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0": true,
		"/sys/devices/pci000f:00/000f:00:00.0/000f:02:00.0": false,
		"": false,
	} {
		gpu := Slot{PCIPath: "/sys/devices/pci000f:00/000f:00:00.0/000f:01:00.0"}
		if got := gpu.OnlyCPU(Slot{PCIPath: other}); got != apart {
			t.Errorf("%s and %q meet at the processor only: %v", gpu.PCIPath, other, got)
		}
	}
}

func TestAggregatePlain(t *testing.T) {
	tests := []struct {
		fixture, filter string
		want            Device
	}{
		{"plain", "", Device{Mbps: 2000, PCIPath: "/sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0", GUID: 0x021122fffe334455, LatencyUs: tcpLatencyUs}},
		{"plain", "lo", Device{Mbps: DefaultMbps, LatencyUs: tcpLatencyUs}},
		{"gb10", "en", Device{Mbps: 252060 + 10000, PCIPath: "/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0", GUID: 0x4cbb470000000103, LatencyUs: tcpLatencyUs}},
		{"bond", "bond0", Device{Mbps: 200000, GUID: 0xb8cef60300000002, LatencyUs: tcpLatencyUs}}, // the VLAN is on the bond
	}
	for _, tt := range tests {
		t.Run(tt.fixture+" "+tt.filter, func(t *testing.T) {
			f, err := ParseInterfaces(tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Name = "mesh0"
			tt.want.TCP = true
			if d := cmp.Diff(tt.want, Aggregate(f.Select(discover(t, tt.fixture).Plain)), besidesSpeed); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestAggregateNothing(t *testing.T) {
	if d := cmp.Diff(Device{Name: "mesh0"}, Aggregate(nil)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
