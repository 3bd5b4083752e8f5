package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ncclmesh/tests/require"
)

// systemArchive is a Debian with systemd and netplan, made once.
const systemArchive = "build/lab/systemd.tar"

// beginSystemd starts systemd in node a, with process numbers and mounts of its own, over the machine's own interfaces, and waits
// until it has given the management network its default route, through node b.
const beginSystemd = `set -e
[ $NODE = a ] || exit 0
ip -4 addr flush dev r100; ip -4 addr flush dev mgmt
mkdir -p /tmp/sys/up /tmp/sys/work /tmp/sys/new
mount -t overlay -o lowerdir=/job/root,upperdir=/tmp/sys/up,workdir=/tmp/sys/work overlay /tmp/sys/new
cd /tmp/sys/new
cat >etc/netplan/10-mgmt.yaml <<END
network: {version: 2, renderer: networkd, ethernets: {mgmt: {addresses: [10.10.10.1/24], routes: [{to: default, via: 10.10.10.2}]}}}
END
chmod 600 etc/netplan/*
cp /job/ncclmesh usr/bin
mount -t sysfs sys sys; mount -t cgroup2 cgroup2 sys/fs/cgroup; mount -t devtmpfs dev dev
cat >init <<END
#!/bin/sh
mount -t proc proc /proc; mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=null --show-status=0
END
chmod 755 init
mount --bind /proc proc
chroot . unshare --mount --pid --fork /init >/job/systemd.log 2>&1 </dev/null &
until ip route | grep -q ^default; do sleep 0.5; done
for i in /proc/[0-9]*; do
	read -r name <$i/comm
	[ "$name" = systemd ] && [ "$(readlink $i/ns/pid)" != "$(readlink /proc/self/ns/pid)" ] && echo ${i##*/} >/run/systemd.pid && exit 0
done
exit 1
`

// within runs a command where systemd is.
const within = `within() { chroot /tmp/sys/new nsenter --target $(cat /run/systemd.pid) --mount --pid --root --wd "$@"; }
`

// applied: the port that nobody has named gets its address, and the management network stays.
const applied = within + `[ $NODE = a ] || exit 0
within ncclmesh netplan --apply || exit 1
ip -4 -o addr show dev r100 | grep " 10\..*/30 " && ip route | grep "^default via 10.10.10.2 dev mgmt" && test -s /tmp/sys/new/etc/netplan/70-ncclmesh.yaml
`

// rolledBack: while the file is applied the gateway goes away, and so does the file, and all that it gave.
const rolledBack = within + `if [ $NODE = b ]; then
	until [ -e /job/now ]; do sleep 0.1; done
	ip addr del 10.10.10.2/24 dev mgmt
	until [ -e /job/over ]; do sleep 0.1; done
	ip addr add 10.10.10.2/24 dev mgmt
	exit 0
fi
rm -f /tmp/sys/new/etc/netplan/70-ncclmesh.yaml
within netplan apply
ip -4 addr flush dev r100; ip link set r100 mtu 8000
(until ip -4 -o addr show dev r100 | grep -q " 10\."; do sleep 0.1; done; touch /job/now) &
within ncclmesh netplan --apply; status=$?
touch /job/over
[ $status = 1 ] && [ ! -e /tmp/sys/new/etc/netplan/70-ncclmesh.yaml ] && ! ip -4 -o addr show dev r100 | grep "inet" &&
	ip route | grep "^default via 10.10.10.2 dev mgmt" && ip link show r100 | grep "mtu 8000"
`

// ncclmesh netplan --apply on a node with systemd, networkd and netplan: it gives addresses, and takes them back when the
// management network is lost.
func TestNetplan(t *testing.T) {
	require.Full(t, "tools/ncclmesh/netplan TestApply")
	m := Mesh{Name: "pair", Machines: []string{"a", "b"}, CPUs: 1}
	m.cable(100, "a", "b")
	s := newSession(t, m)
	tar := systemdRoot(t)
	s.cfg.Files = []string{buildTool(t)}
	s.cfg.Log = func(machine, line string) { t.Logf("%s: %s", machine, line) }
	var begun *Lab
	for _, step := range []struct{ name, script string }{{"apply", applied}, {"roll back", rolledBack}} {
		s.step(t, step.name, func(t *testing.T, ctx context.Context, l *Lab) error {
			if begun != l {
				if err := begin(ctx, l, tar); err != nil {
					return err
				}
				begun = l
			}
			return netplanScript(ctx, l, step.script)
		})
	}
}

// begin gives the machines their root directory, and starts systemd in it.
func begin(ctx context.Context, l *Lab, tar string) error {
	root := filepath.Join(l.Job, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	// Devices are the machine's own.
	if out, err := exec.CommandContext(ctx, "tar", "-C", root, "--exclude=./dev/*", "-xf", tar).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", tar, err, out)
	}
	return netplanScript(ctx, l, beginSystemd)
}

func netplanScript(ctx context.Context, l *Lab, script string) error {
	results, err := run(ctx, l, script)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(l.Job, "systemd.log"))
		return fmt.Errorf("%w\n%s\n%s", err, outputs(results), log)
	}
	return nil
}

// systemdRoot returns the archive of the root directory, made if it is missing.
func systemdRoot(t *testing.T) string {
	t.Helper()
	require.Tools(t, require.Lab, "mmdebstrap")
	path := filepath.Join(ModuleRoot(), systemArchive)
	if _, err := os.Stat(path); err == nil {
		return path
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	new := filepath.Join(t.TempDir(), "systemd.tar")
	out, err := exec.Command("mmdebstrap", "--variant=apt", "--include=systemd,systemd-sysv,udev,dbus,netplan.io,iproute2", "bookworm", new).CombinedOutput()
	if err == nil {
		out, err = exec.Command("mv", new, path).CombinedOutput() // it may be another file system's
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}
