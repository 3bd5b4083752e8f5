package doctor_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/doctor"
)

// says returns what one check finds on a, severity and evidence.
func says(t *testing.T, check string, edit func(a, b *machine)) (lines []string) {
	t.Helper()
	m := twoNodes(t, edit)
	m.Nodes = m.Nodes[:1]
	found, _ := doctor.Judge(m, doctor.Selection{Only: []string{check}})
	for _, f := range found {
		lines = append(lines, string(f.Severity)+" "+f.Evidence)
	}
	return lines
}

// An MTU is too small where it costs RDMA bytes of its packets, and not where it only is not the usual one.
func TestMTU(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		netdev, rdma int // rdma 0: the adapter does not open
		want         []string
	}{
		{9000, 4096, nil},
		{4200, 4096, nil},
		{4200, 2048, []string{"warn enp1s0f0np0 has an MTU of 4200, RDMA packets have 2048 bytes"}},
		{1500, 1024, []string{"warn enp1s0f0np0 has an MTU of 1500, RDMA packets have 1024 bytes"}},
		{1500, 4096, []string{"warn enp1s0f0np0 has an MTU of 1500, RDMA packets have 1024 bytes"}}, // as reported before the MTU was set
		{300, 0, []string{"warn enp1s0f0np0 has an MTU of 300, RDMA packets have 256 bytes"}},
		{9000, 0, nil},
		{4192, 0, nil},
		{4191, 0, []string{"warn enp1s0f0np0 has an MTU of 4191, RDMA packets have 2048 bytes"}},
		{1500, 0, []string{"warn enp1s0f0np0 has an MTU of 1500, RDMA packets have 1024 bytes"}},
	} {
		t.Run(fmt.Sprint(tt.netdev, " ", tt.rdma), func(t *testing.T) {
			t.Parallel()
			got := says(t, "mtu-small", func(a, _ *machine) {
				a.link(h0.netdev).MTU, a.verbs.mtu = tt.netdev, tt.rdma
				if tt.rdma == 0 {
					a.verbs.open = syscall.EACCES
				}
			})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A process that may lock more than its limit has nothing to fear from it.
func TestMemlock(t *testing.T) {
	t.Parallel()
	const (
		root   = "CapEff:\t000001ffffffffff"
		user   = "CapEff:\t0000000000000000"
		whole  = "         0          0 4294967295\n"
		mapped = "         0       1000          1\n"
		warns  = "warn process 4711 may lock 8 MiB of memory"
	)
	for _, tt := range []struct {
		name, limit, status, ids string // "": not to be read
		want                     []string
	}{
		{"a user", "8388608", user, whole, []string{warns}},
		{"a user without a limit", "unlimited", user, whole, nil},
		{"root", "8388608", root, whole, nil},
		{"one capability", "8388608", "CapEff:\t0000000000004000", whole, nil},
		{"all capabilities but the one", "8388608", "CapEff:\t000001ffffffbfff", whole, []string{warns}},
		{"root in a container without root", "8388608", root, mapped, []string{warns}},
		{"another user's job", "8388608", "", "", []string{warns}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := says(t, "memlock", func(a, _ *machine) {
				a.job()
				a.limit(tt.limit)
				if tt.status != "" {
					a.set("proc/4711/status", "Name:\tpython3\n"+tt.status+"\n", "proc/4711/uid_map", tt.ids)
				}
			})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// What root cannot register is no matter of its limit.
	refused := func(a, _ *machine) {
		a.limit("65536")
		a.verbs.most, a.verbs.why = 1, syscall.ENOMEM
		a.set("proc/self/status", root+"\n", "proc/self/uid_map", whole)
	}
	if got := says(t, "memlock", refused); got != nil {
		t.Errorf("memlock says %q", got)
	}
	if got := says(t, "regmr-enomem", refused); len(got) != 1 || !strings.HasPrefix(got[0], "fail rocep1s0f0: registering 1400 bytes failed") {
		t.Errorf("regmr-enomem says %q", got)
	}
}
