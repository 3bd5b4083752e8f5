package fakeverbs

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

func TestExitStatus(t *testing.T) {
	onceProved(t)
	requireFake(t)
	for script, want := range map[string]int{
		"true":                                   0,
		"test $FAKEVERBS_NODE != b":              1,
		"exit 7":                                 7,
		"test $FAKEVERBS_NODE = a || kill -9 $$": 137,
	} {
		if got := exitCode(t, tool(out, "fakenet", "run", "-p", "triangle.txt", "sh", "-c", script)); got != want {
			t.Errorf("%q: exit status %d, want %d", script, got, want)
		}
	}
}

// Every node has its own interfaces, reaches its neighbours over the cables and
// all others over the management network, and is cleaned up.
func TestNamespaces(t *testing.T) {
	onceProved(t)
	requireNamespaces(t)
	got := output(t, tool(out, "fakenet", "run", "-n", "c", "triangle.txt", "sh", "-c", `
		ip -o -4 addr | awk '{print $2, $4}' | sort
		ls /sys/class/infiniband /sys/class/net
		cat /sys/class/net/p1/phys_port_name /sys/class/infiniband/rdma1/ports/1/gid_attrs/ndevs/3
		getent hosts a
		ip route get 192.168.2.1 | head -1 | cut -d' ' -f3`))
	want := `lo 127.0.0.1/8
mgmt0 10.99.0.3/24
p0 192.168.3.2/24
p1 192.168.2.2/24
/sys/class/infiniband:
rdma0
rdma1

/sys/class/net:
lo
mgmt0
p0
p1
p1
p1
10.99.0.1       a
p1
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node c (-want +got):\n%s", diff)
	}
}

// A command finds every interface up, from its first moment on, also where so many come up that the kernel puts it off.
func TestInterfacesAreUp(t *testing.T) {
	onceProved(t)
	requireNamespaces(t)
	for i := range 6 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			got := output(t, tool(out, "fakenet", "run", "-n", "c", "triangle.txt", "sh", "-c", "ip -br link | awk '{print $1, $2}'"))
			if strings.Count(got, " UP\n") != 3 {
				t.Errorf("want mgmt0, p0 and p1 UP:\n%s", got)
			}
		})
	}
}

// A TCP connection over a cable, and one over the management network.
func TestReach(t *testing.T) {
	onceProved(t)
	requireNamespaces(t)
	require.Tools(t, require.Netns, "bash")
	dir := t.TempDir()
	up(t, dir, "triangle.txt")
	listen := tool(out, "fakenet", "exec", "-d", dir, "b", os.Args[0], "-test.run=^TestEcho$")
	listen.Env = append(listen.Env, "ECHO=1")
	pipe, err := listen.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := listen.Start(); err != nil {
		t.Fatal(err)
	}
	defer listen.Wait()
	defer listen.Process.Kill()
	if line, err := bufio.NewReader(pipe).ReadString('\n'); line != "listening\n" {
		t.Fatalf("%q, %v", line, err)
	}
	for _, addr := range []string{"192.168.1.2", "b"} {
		got := output(t, tool(out, "fakenet", "exec", "-d", dir, "a", "timeout", "10", "bash", "-c",
			"exec 3<>/dev/tcp/"+addr+"/7000; cat <&3"))
		if got != "hello\n" {
			t.Errorf("%s: %q", addr, got)
		}
	}
}

// up holds a fabric up until the test ends.
func up(t *testing.T, dir, topology string) {
	t.Helper()
	cmd := tool(out, "fakenet", "up", "-d", dir, topology)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("fakenet up: %v", err)
		}
	})
	if line, err := bufio.NewReader(pipe).ReadString('\n'); line != "up\n" {
		t.Fatalf("fakenet up: %q, %v", line, err)
	}
}

// Interfaces, files and ports follow a cable.
func TestCable(t *testing.T) {
	onceProved(t)
	requireNamespaces(t)
	dir := t.TempDir()
	up(t, dir, "triangle.txt")
	look := func(node, netdev, dev string) string {
		return output(t, tool(out, "fakenet", "exec", "-d", dir, node, "sh", "-c",
			"ip -br link show "+netdev+" | tr -s ' ' | cut -d' ' -f2; cat /sys/class/net/"+netdev+"/carrier /sys/class/infiniband/"+dev+"/ports/1/state"))
	}
	wait := func(node, netdev, dev, want string) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got := look(node, netdev, dev)
			if got == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s %s: %q, want %q", node, netdev, got, want)
			}
		}
	}
	const isUp, isDown = "UP\n1\n4: ACTIVE\n", "DOWN\n0\n1: DOWN\n"
	wait("a", "p0", "rdma0", isUp)
	output(t, tool(out, "fakefault", "-d", dir, "unplug", "b:rdma1"))
	wait("a", "p0", "rdma0", isDown)
	wait("b", "p1", "rdma1", isDown)
	wait("a", "p1", "rdma1", isUp)
	output(t, tool(out, "fakefault", "-d", dir, "plug", "a:p0"))
	wait("a", "p0", "rdma0", isUp)
	wait("b", "p1", "rdma1", isUp)
}

// What programs find in a node's tree.
func TestTree(t *testing.T) {
	requireFake(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "spark.txt")
	if err := os.WriteFile(file, []byte(`
port a rocep1s0f0   netdev enp1s0f0np0   addr 169.254.0.1/16 addr fd00::1/64 pci 0000:01:00.0 pcie 32.0x4 cage p0 image nic speed 200G
port a roceP2p1s0f0 netdev enP2p1s0f0np0 addr 169.254.0.2/16 pci 0002:01:00.0 cage p0 image nic mtu 9000 gids rxe
port b mlx5_0 addr 169.254.0.3/16
netif a eth7 addr 169.254.0.4/16 mtu 9000 speed 25G
netif c eth0 addr 169.254.0.5/16
port a ib0 layer infiniband lid 5
port b ib0 port 1 layer infiniband mtu 2048
link a:rocep1s0f0 b:mlx5_0
link a:eth7 c:eth0
link b:ib0 a:ib0
node a peermem
`), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, tool(out, "fakenet", "init", "-d", dir, file))
	sys := filepath.Join(dir, "nodes", "a", "sys")
	want := map[string]string{
		"class/infiniband/rocep1s0f0/ports/1/state":                            "4: ACTIVE",
		"class/infiniband/rocep1s0f0/ports/1/phys_state":                       "5: LinkUp",
		"class/infiniband/rocep1s0f0/ports/1/rate":                             "200 Gb/sec (4X HDR)",
		"class/infiniband/rocep1s0f0/ports/1/link_layer":                       "Ethernet",
		"class/infiniband/rocep1s0f0/ports/1/gids/0":                           "fe80:0000:0000:0000:00fb:00ff:fe00:0101",
		"class/infiniband/rocep1s0f0/ports/1/gids/3":                           "0000:0000:0000:0000:0000:ffff:a9fe:0001",
		"class/infiniband/rocep1s0f0/ports/1/gids/5":                           "fd00:0000:0000:0000:0000:0000:0000:0001",
		"class/infiniband/rocep1s0f0/ports/1/gids/6":                           "0000:0000:0000:0000:0000:0000:0000:0000",
		"class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/2":                "IB/RoCE v1",
		"class/infiniband/rocep1s0f0/ports/1/gid_attrs/types/3":                "RoCE v2",
		"class/infiniband/rocep1s0f0/ports/1/gid_attrs/ndevs/3":                "enp1s0f0np0",
		"class/infiniband/rocep1s0f0/sys_image_guid":                           "00fb:00ff:fe00:0101",
		"class/infiniband/roceP2p1s0f0/sys_image_guid":                         "00fb:00ff:fe00:0101",
		"class/infiniband/roceP2p1s0f0/node_guid":                              "00fb:00ff:fe01:0101",
		"class/infiniband/roceP2p1s0f0/ports/1/state":                          "1: DOWN",
		"class/infiniband/roceP2p1s0f0/ports/1/gids/1":                         "0000:0000:0000:0000:0000:ffff:a9fe:0002",
		"class/infiniband/roceP2p1s0f0/ports/1/gid_attrs/types/1":              "RoCE v2",
		"class/infiniband/rocep1s0f0/device/current_link_width":                "4",
		"class/infiniband/rocep1s0f0/device/max_link_speed":                    "32.0 GT/s PCIe",
		"class/infiniband/rocep1s0f0/device/class":                             "0x020000",
		"class/infiniband/ib0/ports/1/link_layer":                              "InfiniBand",
		"class/infiniband/ib0/ports/1/lid":                                     "0x5",
		"class/infiniband/ib0/ports/1/sm_lid":                                  "0x1",
		"class/infiniband/ib0/ports/1/state":                                   "4: ACTIVE",
		"class/infiniband/ib0/ports/1/gids/0":                                  "fe80:0000:0000:0000:00fb:00ff:fe02:0101",
		"class/infiniband/ib0/ports/1/gids/1":                                  "fe80:0000:0000:0000:0000:0000:0000:0000",
		"class/infiniband/ib0/ports/1/gid_attrs/types/0":                       "IB/RoCE v1",
		"class/net/enp1s0f0np0/device/net/enp1s0f0np0/phys_port_name":          "p0",
		"class/net/enP2p1s0f0np0/mtu":                                          "9000",
		"class/net/eth7/mtu":                                                   "9000",
		"class/net/eth7/speed":                                                 "25000",
		"class/net/eth7/carrier":                                               "1",
		"class/net/enp1s0f0np0/address":                                        "02:fb:00:00:01:01",
		"class/net/enp1s0f0np0/device/infiniband/rocep1s0f0/node_type":         "1: CA",
		"class/infiniband_verbs/uverbs1/ibdev":                                 "roceP2p1s0f0",
		"class/infiniband_verbs/uverbs1/device/infiniband/roceP2p1s0f0/uevent": "NAME=roceP2p1s0f0",
		"module/nvidia_peermem/version":                                        "580.0",
	}
	for path, text := range want {
		got, err := os.ReadFile(filepath.Join(sys, path))
		if err != nil || string(got) != text+"\n" {
			t.Errorf("%s: %q, %v, want %q", path, got, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "nodes", "b", "sys/module")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("node b, which has no peermem, has modules: %v", err)
	}
	real, err := filepath.EvalSymlinks(filepath.Join(sys, "class/infiniband/rocep1s0f0/device"))
	if err != nil || !strings.HasSuffix(real, "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0") {
		t.Errorf("device: %s, %v", real, err)
	}
	for node, want := range map[string][]string{"a": {"ib0", "roceP2p1s0f0", "rocep1s0f0"}, "c": nil} {
		entries, err := os.ReadDir(filepath.Join(dir, "nodes", node, "sys/class/infiniband"))
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" || (want == nil) != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("devices of node %s: %v (-want +got):\n%s", node, err, diff)
		}
	}
}

// Every mistake in a topology file is named with its line.
func TestTopologyErrors(t *testing.T) {
	onceProved(t)
	requireFake(t)
	for text, want := range map[string]string{
		"":                                     ":0: there is no node in the file",
		"nod a":                                ":1: unknown word 'nod'; a line starts with node, port, netif, link, mgmt or resolve",
		"node":                                 ":1: want: node NAME",
		"node a peer":                          ":1: want: node NAME [peermem]",
		"node a/b":                             ":1: node 'a/b': want at most 31 letters, digits, '.', '_' or '-'",
		"node ..":                              ":1: node '..': want at most 31 letters",
		"\n# x\nport a":                        ":3: want: port NODE DEVICE [word value]...",
		"port a d addr":                        ":1: want: port NODE DEVICE [word value]...",
		"port a d addr 1.2.3.4":                ":1: addr '1.2.3.4': want an address with its prefix length",
		"port a d addr 1.2.3/24":               ":1: addr '1.2.3/24': this is neither an IPv4 nor an IPv6 address",
		"port a d addr 1.2.3.4/33":             ":1: prefix length '33': want a number from 0 to 32",
		"port a d speed 100":                   ":1: speed '100': want bits a second like 100G or 2500M",
		"port a d mac 1:2":                     ":1: mac '1:2': want six bytes",
		"port a d pci 1:0":                     ":1: pci '1:0': want an address like 0000:01:00.0",
		"port a d pci ../x":                    ":1: pci '../x': want a path below /sys/devices",
		"port a d pcie 32x4":                   ":1: pcie '32x4': want speed and width like 32.0x4",
		"port a d gids all":                    ":1: gids 'all': want mlx5",
		"port a d colour red":                  ":1: port: unknown word 'colour'; known are port,",
		"port a d\nport a d":                   ":2: port 1 of device 'd' of node 'a' is there already",
		"port a d netdev x\nport a e netdev x": ":2: interface 'x' of node 'a' is there already",
		"netif a":                              ":1: want: netif NODE IF [word value]...",
		"netif a p0 gids rxe":                  ":1: netif: unknown word 'gids'; known are addr,",
		"netif a p0\nport a p0 port 2":         ":2: port 2 of device 'p0' of node 'a' is there already",
		"port a d port 2":                      "device 'd' of node 'a': ports must be numbered from 1 without gaps",
		"port a d\nlink a:d b:d":               ":2: port 'b:d': there is no node 'b'",
		"port a d\nlink a:d a:e":               ":2: port 'a:e': node 'a' has no such device, port or interface",
		"port a d\nlink a:d a:d":               ":2: port 'a:d' has a cable already",
		"port a d\nport b d\nlink a:d b:d rate 1":           ":3: rate '1': want bytes a second like 1GB or bits like 10Gb",
		"port a d\nport b d\nlink a:d b:d latency 1":        ":3: latency '1': want a time",
		"node a\nmgmt 10.0.0.0/30":                          ":2: want: mgmt SUBNET",
		"port a d layer token":                              ":1: layer 'token': want ethernet or infiniband",
		"port a d lid 1":                                    ":1: lid 1: only a port with layer infiniband has one",
		"port a d layer infiniband lid 49152":               ":1: lid '49152': want a number from 1 to 49151",
		"port a d layer infiniband addr 1.2.3.4/24":         ":1: device 'd': a port with layer infiniband has no netdev, addr or gids",
		"port a d layer infiniband mtu 1500":                ":1: mtu '1500': InfiniBand has 256, 512, 1024, 2048 and 4096",
		"port a d mtu 512":                                  ":1: mtu '512': want a number from 576 to 65535",
		"port a d layer infiniband\nport b d\nlink a:d b:d": ":3: link: one end is InfiniBand and the other Ethernet",
		"port a d layer infiniband lid 3\nport b d layer infiniband lid 3\nlink a:d b:d": ":3: link: both ends have LID 3",
		"port a d layer infiniband\nport b d layer infiniband\nlink a:d b:d mtu 2048":    ":3: link: an InfiniBand port's mtu stands in its own line",
		"node a\nresolve soon": ":2: resolve 'soon': want a time",
	} {
		file := filepath.Join(t.TempDir(), "topology")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		msg, err := tool(out, "fakenet", "init", "-d", t.TempDir(), file).CombinedOutput()
		if err == nil || !strings.Contains(string(msg), want) {
			t.Errorf("%q: %v: %q does not have %q", text, err, msg, want)
		}
	}
}

// Whatever stands in a topology file, fakenet says what is wrong or takes it.
func FuzzTopology(f *testing.F) {
	requireFake(f)
	for _, name := range []string{"triangle.txt", "infiniband.txt", "selftest/pair.txt"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("netif a e addr ::/0 pci x/y\nnetif b e\nlink a:e b:e mtu 9000"))
	f.Add([]byte("port a d port 254 addr ::/0 mac ff:ff:ff:ff:ff:ff speed 1M pci x/y cage c image i gids rxe msg 1 mtu 576"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		file := filepath.Join(dir, "topology")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if code := exitCode(t, tool(out, "fakenet", "init", "-d", dir, file)); code != 0 && code != 125 {
			t.Errorf("exit status %d", code)
		}
	})
}
