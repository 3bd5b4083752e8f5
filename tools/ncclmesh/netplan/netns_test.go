package netplan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/require"
	"ncclmesh/transport/topology"
)

const helperVariable = "NETPLAN_TEST_HELPER"

// TestHelper is what tests run in a network namespace: a process of its own.
func TestHelper(t *testing.T) {
	switch os.Getenv(helperVariable) {
	case "":
		t.Skip("runs within other tests")
	case "cables":
		helpCables(t)
	case "apply":
		helpApply(t)
	}
}

// helpCables prints the plan of a namespace's interfaces.
func helpCables(t *testing.T) {
	node, err := topology.Discover(topology.Source{Sysfs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	links, _, err := Present{Node: node}.Choose([]string{"pa", "pb"})
	if err != nil {
		t.Fatal(err)
	}
	functions, left, err := Neighbours(t.Context(), links, time.Second)
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	cables, _ := Cables(functions)
	plan, err := New(cables, Range, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range plan {
		fmt.Printf("ip addr add %v dev %s\n", e.Address, e.Name)
	}
}

// helpApply applies a file with a netplan that takes the default route away, and the second time gives it back.
func helpApply(t *testing.T) {
	m, err := NewManagement(t.Context(), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("watching " + m.String())
	script := "ip link set pa mtu 9000 && ip route del default"
	a := &Applier{
		Root: t.TempDir(), Lost: m.Lost, Patience: 300 * time.Millisecond, Steady: 100 * time.Millisecond, Limit: Limit, Say: func(what string) { fmt.Println(what) },
	}
	mtus, err := Plan{{Cable: Cable{Name: "pa"}}}.MTUs()
	if err != nil {
		t.Fatal(err)
	}
	a.Undo = mtus
	a.Netplan = func(ctx context.Context, verb string) ([]byte, error) {
		if verb != "apply" {
			return nil, nil
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		script = "ip route add default via 10.9.0.1 dev mg"
		return cmd.CombinedOutput()
	}
	rolled := new(RolledBack)
	if err := a.Apply(t.Context(), "new"); !errors.As(err, &rolled) {
		t.Fatalf("%v, want that it is rolled back", err)
	}
	fmt.Println(rolled)
	if err := m.Lost(t.Context()); err != nil {
		t.Fatalf("after rolling back: %v", err)
	}
	if i, err := net.InterfaceByName("pa"); err != nil || i.MTU != 1500 {
		t.Fatalf("after rolling back: %+v, %v", i, err)
	}
	a.Patience = 30 * time.Second
	script = "ip route replace default via 10.9.0.1 dev mg"
	if err := a.Apply(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	fmt.Println("applied")
}

// inside runs a helper in a network namespace.
func inside(t *testing.T, namespace, helper string) string {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", namespace, os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), helperVariable+"="+helper)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s in %s: %v\n%s", helper, namespace, err, out)
	}
	return string(out)
}

// namespaces makes two of them, with two cables and a management network between them.
func namespaces(t *testing.T) (a, b string) {
	t.Helper()
	require.Tools(t, require.Netns, "ip", "sh")
	a, b = fmt.Sprintf("netplan-%d-a", os.Getpid()), fmt.Sprintf("netplan-%d-b", os.Getpid())
	for _, n := range []string{a, b} {
		if out, err := exec.Command("ip", "netns", "add", n).CombinedOutput(); err != nil {
			require.Skip(t, require.Netns, string(out))
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n).Run() })
	}
	script := `set -e
		for l in pa pb mg; do
			ip link add $l netns $1 type veth peer name $l netns $2
			ip -n $1 link set $l up
			ip -n $2 link set $l up
		done
		ip -n $1 addr add 10.9.0.1/24 dev mg
		ip -n $2 addr add 10.9.0.2/24 dev mg
		ip -n $2 route add default via 10.9.0.1 dev mg
		for n in $1 $2; do
			for i in $(seq 600); do
				test $(ip -n $n -6 addr show tentative | wc -l) = 0 && test $(ip -n $n -6 -o addr show scope link | wc -l) = 3 && break
				sleep 0.1
			done
		done`
	if out, err := exec.Command("sh", "-c", script, "sh", a, b).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return a, b
}

// Both ends of two real links, each by itself, plan addresses between which packets pass, whichever port is at the other end;
// and the loss of a real default route is seen, and undone.
func TestNamespaces(t *testing.T) {
	a, b := namespaces(t)
	for _, n := range []string{a, b} {
		commands := ""
		for line := range strings.Lines(inside(t, n, "cables")) {
			if strings.HasPrefix(line, "ip addr add ") {
				commands += strings.Replace(line, "ip ", "ip -n "+n+" ", 1)
			}
		}
		if strings.Count(commands, "\n") != 2 {
			t.Fatalf("%s plans %q, want two addresses", n, commands)
		}
		if out, err := exec.Command("sh", "-ec", commands).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, l := range []string{"pa", "pb"} {
		// The route's address at the other end is there, and on this link.
		script := `set -e
			here=$(ip -n $1 -4 -o addr show dev $3 | awk '{print $4}') there=$(ip -n $2 -4 -o addr show dev $3 | awk '{print $4}')
			test "$here" != "$there"
			ip -n $1 route get ${there%/*} | grep " dev $3 "
			ip netns exec $2 ip route get ${here%/*} | grep " dev $3 "`
		if out, err := exec.Command("sh", "-c", script, "sh", a, b, l).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", l, err, out)
		}
	}
	said := inside(t, b, "apply")
	for _, want := range []string{"watching the default route through 10.9.0.1 on mg\n", "gone: rolled back\n", "applied"} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, and not %q", said, want)
		}
	}
}
