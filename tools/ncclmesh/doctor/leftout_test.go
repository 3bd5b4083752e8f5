package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/doctor"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
)

// set adds variables to what a's jobs are given.
func set(env ...string) func(a, b *machine) {
	return func(a, _ *machine) { a.env = append(a.env, env...) }
}

// pass gives the halves of the first cable states, as packets would have found them.
func pass(states ...topo.State) func(*facts.Mesh) {
	return func(m *facts.Mesh) {
		for i, s := range states {
			cable(m).Halves[i].State = s
		}
		cable(m).Why = "rocep1s0f0:1 of a cannot be used for RDMA: ncclmesh doctor says more"
	}
}

// leftOutRows are settings that leave a port out.
var leftOutRows = []row{
	{"port-left-out", "one half of a cable, by name", warn, set("NCCL_IB_HCA=rocep1s0f0,rocep1s0f1,roceP2p1s0f1"), pass(topo.RDMA, topo.TCP)},
	{"port-left-out", "both nodes leave the same half out", warn, func(a, b *machine) {
		a.env, b.env = append(a.env, "NCCL_IB_HCA=rocep1s0f0,rocep1s0f1"), append(b.env, "NCCL_IB_HCA=^roceP2p1s0f1")
	}, pass(topo.RDMA, topo.TCP)},
	{"port-left-out", "both nodes use TCP", "", func(a, b *machine) {
		a.env, b.env = append(a.env, "NCCL_MESH_TRANSPORT=tcp"), append(b.env, "NCCL_MESH_TRANSPORT=tcp")
	}, pass(topo.TCP, topo.TCP)},
	{"port-left-out", "no path was tried", unknown, set("NCCL_IB_HCA=rocep1s0f0"), noMap},
	{"port-left-out", "a job that cannot be read", unknown, otherUsersJob, nil},
}

// A setting that leaves a port out is the one finding about the cable: it names the variable, its value, the node and the
// port, and what would otherwise be blamed, a firewall or a half that nobody configured, is not shown.
func TestSettingsThatLeavePortsOut(t *testing.T) {
	t.Parallel()
	bareCable := func(m *facts.Mesh) { // nothing was heard on the first cable, and no other is there
		m.Map.Value.Cables = nil
		m.Map.Value.Apart = []topo.Apart{{Nodes: [2]string{"a", "b"}}}
		for i := range m.Nodes { // they have other addresses than the healthy ones
			m.Nodes[i].Lookups = facts.Known([]facts.Lookup{})
		}
	}
	noRDMA := func(env ...string) func(a, b *machine) {
		return func(a, b *machine) {
			for _, m := range []*machine{a, b} {
				m.noAdapter()
				m.drop("sys/bus/pci")
				for _, h := range halves[1:] {
					m.link(h.netdev).Addrs = nil
				}
			}
			a.link(h0.netdev).Addrs[0], b.link(h0.netdev).Addrs[0] = address(0, 0), address(1, 2)
			a.env = append(a.env, env...)
		}
	}
	tests := []struct {
		name     string
		machines func(a, b *machine)
		mesh     func(*facts.Mesh)
		want     []string // findings that are shown: severity, check, where, and words of the evidence and of the remedy
	}{
		{"nothing", nil, nil, nil},
		{"NCCL_IB_HCA, one half", set("NCCL_IB_HCA=rocep1s0f0,rocep1s0f1,roceP2p1s0f1"), pass(topo.RDMA, topo.TCP), []string{
			"warn port-left-out a:p0 ═ b:p1", "NCCL_IB_HCA=rocep1s0f0,rocep1s0f1,roceP2p1s0f1 on a leaves out roceP2p1s0f0:1 (enP2p1s0f0np0), which is used at b:enP2p1s0f1np1",
			"RDMA is used over the rest of the cable alone", "unset NCCL_IB_HCA on a, or let it select all ports of the node that have a cable",
		}},
		{"NCCL_IB_HCA, a whole cable", set("NCCL_IB_HCA=rocep1s0f1,roceP2p1s0f1"), pass(topo.TCP, topo.TCP), []string{
			"warn port-left-out a:p0 ═ b:p1", "leaves out rocep1s0f0:1", "TCP is used, which is slower than RDMA", "unset NCCL_IB_HCA on a, or let it select all ports of the node that have a cable",
			"warn port-left-out a:p0 ═ b:p1", "leaves out roceP2p1s0f0:1", "unset NCCL_IB_HCA on a, or let it select all ports of the node that have a cable",
		}},
		{"NCCL_IB_HCA excludes, and TCP does not pass", set("NCCL_IB_HCA=^rocep1s0f0,roceP2p1s0f0"), pass(topo.Heard, topo.Heard), []string{
			"fail port-left-out a:p0 ═ b:p1", "NCCL_IB_HCA=^rocep1s0f0,roceP2p1s0f0 on a leaves out rocep1s0f0:1", "nothing passes over the cable",
			"fail port-left-out a:p0 ═ b:p1", "leaves out roceP2p1s0f0:1",
		}},
		{"NCCL_MESH_TRANSPORT=tcp on one node", set("NCCL_MESH_TRANSPORT=tcp"), pass(topo.TCP, topo.TCP), []string{
			"warn port-left-out a:p0 ═ b:p1", "NCCL_MESH_TRANSPORT=tcp on a leaves out rocep1s0f0:1", "unset NCCL_MESH_TRANSPORT on a, or set it to tcp on all nodes",
			"warn port-left-out a:p0 ═ b:p1", "NCCL_MESH_TRANSPORT=tcp on a leaves out roceP2p1s0f0:1",
		}},
		{"NCCL_IB_HCA in a file of NCCL's", func(a, _ *machine) { a.set("etc/nccl.conf", "NCCL_IB_HCA=rocep1s0f0,rocep1s0f1,roceP2p1s0f1\n") }, pass(topo.RDMA, topo.TCP), []string{
			"warn port-left-out a:p0 ═ b:p1", "NCCL_IB_HCA=rocep1s0f0,rocep1s0f1,roceP2p1s0f1 (in /etc/nccl.conf) on a leaves out roceP2p1s0f0:1",
			"remove NCCL_IB_HCA from /etc/nccl.conf on a, or let it select all ports of the node that have a cable",
			"warn nccl-conf a",
		}},
		{"NCCL_MESH_TRANSPORT=tcp on both nodes", func(a, b *machine) {
			a.env, b.env = append(a.env, "NCCL_MESH_TRANSPORT=tcp"), append(b.env, "NCCL_MESH_TRANSPORT=tcp")
		}, pass(topo.TCP, topo.TCP), nil},
		{"NCCL_SOCKET_IFNAME excludes, without RDMA", noRDMA("NCCL_SOCKET_IFNAME=^enp1s0f0"), bareCable, []string{
			"fail port-left-out a:enp1s0f0np0 ═ b:enp1s0f0np0", "NCCL_SOCKET_IFNAME=^enp1s0f0 on a leaves out enp1s0f0np0, which is used at b:enp1s0f0np0", "unset NCCL_SOCKET_IFNAME on a",
		}},
		{"NCCL_MESH_IFNAME names another, without RDMA", noRDMA("NCCL_MESH_IFNAME=enP7s7"), bareCable, []string{
			"fail port-left-out a:enp1s0f0np0 ═ b:enp1s0f0np0", "NCCL_MESH_IFNAME=enP7s7 on a leaves out enp1s0f0np0", "unset NCCL_MESH_IFNAME on a, or let it select all ports of the node that have a cable",
		}},
		{"NCCL_MESH_TRANSPORT=rdma, without RDMA", noRDMA("NCCL_MESH_TRANSPORT=rdma"), bareCable, []string{
			"fail port-left-out a:enp1s0f0np0 ═ b:enp1s0f0np0", "NCCL_MESH_TRANSPORT=rdma on a leaves out enp1s0f0np0, which is used at b", "unset NCCL_MESH_TRANSPORT on a\n",
		}},
		{"NCCL_SOCKET_IFNAME names the management network", set("NCCL_SOCKET_IFNAME=enP7s7"), nil, nil},
		{"NCCL_SOCKET_IFNAME excludes, and RDMA passes", set("NCCL_SOCKET_IFNAME=^enp1s0f0"), nil, nil},
		{"a firewall", nil, pass(topo.TCP, topo.RDMA), []string{"warn roce-filtered a:p0 ═ b:p1", "UDP port 4791"}},
		{"a firewall on one cable, a setting on another", set("NCCL_IB_HCA=rocep1s0f0,roceP2p1s0f0,rocep1s0f1"), func(m *facts.Mesh) {
			pass(topo.TCP, topo.RDMA)(m)
			m.Map.Value.Cables[1].Halves[1].State = topo.TCP
		}, []string{
			"warn port-left-out a:p1 ═ b:p0", "leaves out roceP2p1s0f1:1",
			"warn roce-filtered a:p0 ═ b:p1", "UDP port 4791",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := twoNodes(t, tt.machines)
			if tt.mesh != nil {
				tt.mesh(m)
			}
			found, _ := doctor.Judge(m, doctor.Selection{})
			var heads, wantHeads []string
			text := ""
			for _, f := range found {
				if f.Check == "env-recipe" && f.Shown() && strings.Contains(strings.Join(tt.want, " "), "port-left-out") {
					t.Errorf("beside port-left-out it says %q", f.Evidence)
				}
				if f.Shown() && (f.Severity == doctor.Fail || f.Severity == doctor.Warn) {
					heads = append(heads, string(f.Severity)+" "+f.Check+" "+f.Where())
					text += f.Evidence + "\n" + f.Remedy + "\n"
				}
			}
			for _, w := range tt.want {
				if slices.Contains([]string{"warn", "fail"}, strings.SplitN(w, " ", 2)[0]) {
					wantHeads = append(wantHeads, w)
				} else if !strings.Contains(text, w) {
					t.Errorf("no %q in\n%s", w, text)
				}
			}
			if diff := cmp.Diff(wantHeads, heads); diff != "" {
				t.Errorf("shown (-want +got):\n%s%s", diff, text)
			}
		})
	}
}
