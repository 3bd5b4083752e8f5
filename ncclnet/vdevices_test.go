package ncclnet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/topology"
)

func TestVDevicesFor(t *testing.T) {
	const first, second = "/sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0", "/sys/devices/pci0002:00/0002:00:00.0/0002:01:00.0"
	gb10 := topology.Device{Name: "mesh0", Mbps: 252060, Payload: 223324, PCIPath: first, Slots: []topology.Slot{{PCIPath: first, NUMA: 0}, {PCIPath: second, NUMA: 0}}}
	with := func(f func(*topology.Device)) topology.Device {
		d := gb10
		f(&d)
		return d
	}
	gpu := []topology.Slot{{PCIPath: "/sys/devices/pci000f:00/000f:00:00.0/000f:01:00.0", NUMA: 0}}
	newest, older, eight := Caller{Interface: 12, Version: 23007}, Caller{Interface: 11}, Caller{Interface: 8, Version: 22203}
	today := []vDevice{{"mesh0", first, 252060}}
	several := func(n int, path string, mbps, more int) []vDevice {
		var vDevices []vDevice
		for i := range n {
			vDevices = append(vDevices, vDevice{fmt.Sprintf("mesh%d", i), path, mbps})
		}
		vDevices[0].mbps += more
		return vDevices
	}
	tests := []struct {
		name   string
		device topology.Device
		gpus   []topology.Slot
		tuned  bool
		caller Caller
		want   []vDevice
	}{
		{"GB10", gb10, gpu, true, newest, several(8, "", 27915, 0)},
		{"ranks that do not agree on channels", gb10, gpu, true, older, several(8, "", 27915, 8)},
		{"nor do those of 2.22", gb10, gpu, true, eight, several(8, "", 27915, 8)},
		{"2.29.7 has version 11 as 2.28 does", gb10, gpu, true, Caller{Interface: 11, Version: 22907}, several(8, "", 27915, 0)},
		{"one cable", with(func(d *topology.Device) { d.Payload = 196000 }), gpu, true, newest, several(8, "", 24500, 0)},
		{"one slot has a path", with(func(d *topology.Device) { d.Slots, d.Payload = d.Slots[:1], 111662 }), gpu, true, newest, several(4, first, 27915, 0)},
		{"a slot beside the GPU has one too", gb10, []topology.Slot{{PCIPath: "/sys/devices/pci0000:00/0000:00:00.0/0000:02:00.0", NUMA: 0}}, true, newest, several(8, first, 27915, 0)},
		{"Data Direct", with(func(d *topology.Device) { d.DataDirect = "/sys/devices/dma" }), gpu, true, newest, several(8, "/sys/devices/dma", 27915, 0)},
		{"Data Direct, one device", with(func(d *topology.Device) { d.DataDirect = "/sys/devices/dma" }), gpu, false, newest, []vDevice{{"mesh0", "/sys/devices/dma", 252060}}},
		{"no tuner of ours", gb10, gpu, false, newest, today},
		{"no GPU in sysfs", gb10, nil, true, newest, today},
		{"several", gb10, append(gpu, gpu...), true, newest, today},
		{"on another NUMA node", gb10, []topology.Slot{{PCIPath: gpu[0].PCIPath, NUMA: 1}}, true, newest, today},
		{"TCP", with(func(d *topology.Device) { d.TCP = true }), gpu, true, newest, today},
		{"slower than two", with(func(d *topology.Device) { d.Payload = 24500 }), gpu, true, newest, today},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, vDevicesFor(tt.device, tt.gpus, tt.tuned, tt.caller), cmp.AllowUnexported(vDevice{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTunerIsLookedFor(t *testing.T) {
	tests := []struct {
		caller Caller
		env    map[string]string
		want   bool
	}{
		{Caller{Interface: 8}, nil, false}, // 2.19 or 2.20, maybe
		{Caller{Interface: 8, Version: 22005}, nil, false},
		{Caller{Interface: 8, Version: 22105}, nil, true},
		{Caller{Interface: 9}, nil, true},
		{Caller{Interface: 12, Version: 23007}, map[string]string{"NCCL_TUNER_PLUGIN": "none"}, false},
		{Caller{Interface: 12, Version: 23007}, map[string]string{"NCCL_TUNER_PLUGIN": "/opt/mesh.so", "NCCL_NET_PLUGIN": "/opt/mesh.so"}, true},
		{Caller{Interface: 12, Version: 23007}, map[string]string{"NCCL_MESH_TUNER": "0"}, false},
	}
	for _, tt := range tests {
		n := newTestNet(t)
		for k, v := range tt.env {
			n.env[k] = v
		}
		n.env["NCCL_MESH_SYSFS"] = oneGPU(t)
		n.f.device.Payload, n.f.device.Slots = 196000, []topology.Slot{{PCIPath: n.f.device.PCIPath, NUMA: -1}}
		_, r := n.Init(n.logger(), tt.caller, -1)
		n.ok("init", r)
		devices, r := n.Devices()
		n.ok("devices", r)
		if (devices == 8) != tt.want || (devices == 1) == tt.want {
			t.Errorf("%+v %v: %d devices", tt.caller, tt.env, devices)
		}
		const said = "NCCL sees the mesh as 8 devices of 3.1 GB/s on /sys/devices/pci0000:00/0000:01:00.0, which make 16 channels to choose from"
		if log := n.logged(); strings.Contains(log, said) != tt.want {
			t.Errorf("%+v %v: log %s", tt.caller, tt.env, log)
		}
		last, r := n.Properties(devices - 1)
		n.ok("getProperties", r)
		if tt.want && (last.Name != "mesh7" || last.Port != 8 || last.Speed != 24500) {
			t.Errorf("the last device: %+v", last)
		}
		if _, r := n.Properties(devices); r != ncclInvalidArgument {
			t.Errorf("device %d: %v", devices, r)
		}
	}
}

// oneGPU is a sysfs that contains only a GPU.
func oneGPU(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "bus/pci/devices/000f:01:00.0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"vendor": "0x10de", "class": "0x030000"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
