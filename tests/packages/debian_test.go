package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// inside is what is done in a clean Debian: apt installs the packages, the command runs, the dynamic linker finds the
// plugin by its name alone and NCCL's default name leads nowhere, programs in C and Python use the library as they use Debian's own,
// the service is there and not enabled, and all goes again; and the recipe of an image does what it says.
const inside = `set -eux
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends /packages/*.deb
ncclmesh --version
ncclmesh version | grep "of the same build"
eval "$(ncclmesh env)"
test "$NCCL_NET_PLUGIN" = mesh
LD_PRELOAD=libnccl-net-mesh.so /bin/true 2>&1 | tee /tmp/said
test ! -s /tmp/said
LD_PRELOAD=libnccl-net.so /bin/true 2>&1 | grep "cannot be preloaded"
LD_LIBRARY_PATH=/usr/lib/ncclmesh/compat LD_PRELOAD=libnccl-net.so /bin/true 2>&1 | tee /tmp/said
test ! -s /tmp/said
cc /packages/x.c -lncclmesh -o /tmp/x
/tmp/x | grep '^1.0-dev'
python3 /packages/x.py | grep '^1.0-dev'
test -e /usr/lib/systemd/system/ncclmesh-relay.service
test -z "$(find /etc/systemd -name 'ncclmesh*')"
apt-get purge -y ncclmesh libnccl-net-mesh libncclmesh
gone() {
	test -z "$(find / -xdev -path /packages -prune -o -path /proc -prune -o -path /var -prune -o -name '*ncclmesh*' -print -o -name 'libnccl-net*' -print)"
}
gone
# The image's own steps. A build context has packages of one architecture here.
mkdir /target
sh -euxc "$(sed -n 's/^RUN //p' /packages/Dockerfile | sed 's/ && rm -r .*//')"
sed -n 's/^CMD .*"-euc", "\(.*\)"\]$/\1/p' /packages/Dockerfile >/tmp/copy
test -s /tmp/copy
sh -eux /tmp/copy
test "$(ls /target | tr '\n' ' ')" = "libnccl-net-mesh.so ncclmesh "
LD_LIBRARY_PATH=/target LD_PRELOAD=libnccl-net-mesh.so /target/ncclmesh version | grep "plugin /target/libnccl-net-mesh.so: of the same build"
rm -r /target
dpkg --purge ncclmesh libnccl-net-mesh libncclmesh
gone
`

// A clean Debian installs, runs and removes the packages.
func TestDebian(t *testing.T) {
	require.Full(t, "tests/packages TestDeb, into an empty root directory")
	require.Tools(t, require.Packages, "mmdebstrap")
	packages := t.TempDir()
	g := targets()[0]
	for _, name := range names {
		command(t, "cp", find(t, name+"_*_"+g.deb+".deb"), packages)
	}
	command(t, "cp", "../../docs/recipes/image/Dockerfile", packages)
	root := filepath.Join(t.TempDir(), "root")
	for name, text := range map[string]string{"inside": inside, "x.c": program, "x.py": python} {
		if err := os.WriteFile(filepath.Join(packages, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The hook runs while the root directory has what chroot needs.
	out, err := exec.Command("mmdebstrap", "--variant=apt", "--include=gcc,libc6-dev,python3", "--customize-hook=copy-in "+packages+" /",
		`--customize-hook=chroot "$1" sh -c 'mv /`+filepath.Base(packages)+` /packages && sh /packages/inside'`, "bookworm", root).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(string(out)))
	}
}

// tail is what is last in a long output.
func tail(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}
