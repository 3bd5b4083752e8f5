package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ncclmesh/tools/ncclmesh/secret"
)

func redactor(t testing.TB, addresses bool) *Redactor {
	t.Helper()
	mac, err := net.ParseMAC("02:5a:be:ef:00:01")
	if err != nil {
		t.Fatal(err)
	}
	digits := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
	return New([]string{"Tr0ub4dor&3", "abc", "two lines\n  of a key ", "1234567", "87654321", "false", "it's <\"&\""}, addresses, Node{Host: "spark-1.lab.example",
		MACs: []net.HardwareAddr{mac, digits, make(net.HardwareAddr, 6), nil}, GUIDs: []uint64{0x025abe0300ef0001, 0},
		Addrs: []netip.Addr{netip.MustParseAddr("192.168.7.9"), netip.MustParseAddr("fe80::5a:beff:feef:1%eth0"), netip.MustParseAddr("fd00::7:9"), netip.MustParseAddr("127.0.0.1")}})
}

// The values of secrets are found without their names, in all spellings. What else package secret finds is gone, too.
func TestSecrets(t *testing.T) {
	tests := []struct {
		text, want string
		count      Count
	}{
		{"nothing of that kind: keep", "nothing of that kind: keep", Count{}},
		{"it was Tr0ub4dor&3, so xTr0ub4dor&3x", "it was (redacted), so x(redacted)x", Count{known: 2}},
		{"abc is too short, and 1234567 and false are ordinary", "abc is too short, and 1234567 and false are ordinary", Count{}},
		{"x two lines\n    of a key x", "x (redacted)\n    (redacted) x", Count{known: 2}},
		{"x87654321x", "x(redacted)x", Count{known: 1}},
		{`"Tr0ub4dor\u00263" ?q=Tr0ub4dor%263 VHIwdWI0ZG9yJjM=`, `"(redacted)" ?q=(redacted) (redacted)=`, Count{known: 3}},
		{`it's <"&"> "it's <\"&\">" "it's \u003c\"\u0026\"" it%27s+%3C%22%26%22`, `(redacted)> "(redacted)>" "(redacted)" (redacted)`, Count{known: 4}},
		{"DB_PASS=Tr0ub4dor&3 TOKEN=xTr0ub4dor&3", "DB_PASS=(redacted) TOKEN=(redacted)", Count{known: 2, "assignment": 1}},
		{"DB_PASS=hush AIzaSyhunter2hunter2hunter2hunter2", "DB_PASS=(redacted) (redacted)", Count{"assignment": 1, "form": 1}},
		{"\x1b[31mauth\x1b[0m: \x1b[1;32mhush\x1b[0m", "auth: (redacted)", Count{"assignment": 1}},
		{"192.168.7.9 stays", "192.168.7.9 stays", Count{}},
	}
	for _, tt := range tests {
		r := redactor(t, false)
		got, count := r.Text([]byte(tt.text))
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
		if diff := cmp.Diff(tt.count, count); diff != "" {
			t.Errorf("%q: counts (-want +got):\n%s", tt.text, diff)
		}
		if err := r.Leaks(got); err != nil {
			t.Errorf("%q: %v", got, err)
		}
	}
}

// The same address has the same name everywhere, whatever its spelling, and what only looks like one stays.
func TestAddresses(t *testing.T) {
	r := redactor(t, true)
	tests := []struct{ name, text, want string }{
		{"MAC", "02:5a:be:ef:00:01 and 02-5A-BE-EF-00-01", "mac-1 and mac-1"},
		{"MAC without colons", "025a.beef.0001, 025abeef0001, 025ABEEF0001, 025abe-ef0001, 025a-beef-0001", "mac-1, mac-1, mac-1, mac-1, mac-1"},
		{"MAC in a name", "enx025abeef0001: at_02:5a:be:ef:00:01", "enxmac-1: at_mac-1"},
		{"MAC of nmcli", `02\:5A\:BE\:EF\:00\:01`, "mac-1"},
		{"MAC after others", "ab:02:5a:be:ef:00:01 7ab:02:5a:be:ef:00:01", "ab:mac-1 7ab:mac-1"},
		{"MAC of digits, ours", "020000000001 0200.0000.0001", "mac-2 mac-2"},
		{"MAC of digits, another", "020000000002 0200.0000.0002 02:00:00:00:00:02", "020000000002 0200.0000.0002 mac-3"},
		{"MAC, another", "aabb.ccdd.ee0f aabbccddee0f AA:BB:CC:DD:EE:0F", "mac-4 mac-4 mac-4"},
		{"MAC of all", "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff"},
		{"IPv4", "192.168.7.9/24, 192.168.7.10:4791.", "ip-1/24, ip-2:4791."},
		{"IPv4 in a host name", "ip-192-168-7-9.ec2.internal 192-168-7-9.local 192_168_7_10 n-192-168-7-10", "ip-ip-1.ec2.internal ip-1.local ip-2 n-ip-2"},
		{"IPv4 in a public host name", "ec2-52-1-2-3.compute-1.amazonaws.com at 52.1.2.3, 8-8-4-4.example", "ec2-ip-3.compute-1.amazonaws.com at ip-3, ip-4.example"},
		{"IPv4 with zeros", "192.168.007.009", "ip-1"},
		{"IPv4 in reverse", "9.7.168.192.in-addr.arpa", "ip-1.in-addr.arpa"},
		{"IPv4 with a port", "192.168.7.9.22 > 1-192-168-7-9", "ip-1.22 > 1-ip-1"},
		{"IPv4 of NCCL", "Using eno1:192.168.7.9<0> [1]eno2:192.168.7.10<0>", "Using eno1:ip-1<0> [1]eno2:ip-2<0>"},
		{"IPv4 mapped", "::ffff:192.168.7.9 is 0000:0000:0000:0000:0000:ffff:c0a8:0709 is 00000000000000000000ffffc0a80709", "ip-1 is ip-1 is ip-1"},
		{"IPv6", "fe80::5a:beff:feef:1%eth0 is fe80:0000:0000:0000:005a:beff:feef:0001, fd00::7:9", "ip-5%eth0 is ip-5, ip-6"},
		{"IPv6 amid colons", "gid:fe80::5a:beff:feef:1: [fd00::7:9]:4791 at 12:34:56:fd00::7:9. x:::ffff:192.168.7.9", "gid:ip-5: [ip-6]:4791 at 12:34:56:ip-6. x:ip-1"},
		{"IPv6 in a host name", "fd00--7-9.local ip6-2001-db8-0-0-0-0-0-1.example", "ip-6.local ip6-ip-7.example"},
		{"IPv6 that ends in colons", "2001:db8::/32 fd00::", "ip-8/32 ip-9"},
		{"after an escape", `\n192.168.7.9\n02:5a:be:ef:00:01\u003cfd00::7:9\u003e\x1b[31m10.9.9.9\x1b[0m` + "\x1b[1;31m10.9.9.9\x1b[0m", `\nip-1\nmac-1\u003cip-6\u003e\x1b[31mip-10\x1b[0m` + "ip-10"},
		{"beside a letter", "x192.168.7.9x xfe80::5a:beff:feef:1 02:5a:be:ef:00:01x", "xip-1x xip-5 mac-1x"},
		{"GID of NCCL", "GID 3 (0/907A8C0FFFF0000) fifoRkey=0x1b9e9c, GID 0 (80FE/100EFFEFFBE5A00), GID 1 (0/0)", "GID 3 (ip-1) fifoRkey=0x1b9e9c, GID 0 (ip-5), GID 1 (0/0)"},
		{"GID", "fe80000000000000005abefffeef0001", "ip-5"},
		{"GUID", "025a:be03:00ef:0001 is 0x025abe0300ef0001 is 025abe0300ef0001 is 02:5a:be:03:00:ef:00:01", "guid-1 is guid-1 is guid-1 is guid-1"},
		{"GUID, another", "0011:2233:4455:6677 0x0011223344556677 a011223344556677", "guid-2 guid-2 guid-3"},
		{"IPoIB", "80:00:00:48:fe:80:00:00:00:00:00:00:aa:5a:be:ff:fe:ef:00:01", "mac-5"},
		{"host", "spark-1: on spark-10, SPARK-1.lab.example, spark-1-p0", "this-node: on spark-10, this-node, this-node-p0"},
		{"of no node", "127.0.0.1 ::1 0.0.0.0 ff02::1 255.255.255.0 :: fe80", "127.0.0.1 ::1 0.0.0.0 ff02::1 255.255.255.0 :: fe80"},
		{"times and devices", "at 12:34:56 on 0000:01:00.0, 2026-11-25-10-36-34-55, 2026-11-25T10:36:34", "at 12:34:56 on 0000:01:00.0, 2026-11-25-10-36-34-55, 2026-11-25T10:36:34"},
		{"versions", "2.29.7, 999.1.1.1, nvidia-cublas-cu12==12.8.4.1 libcudnn.so.9.1.0.70 OFED-5.8-2.0.3.0 version 1.2.3.4", "2.29.7, 999.1.1.1, nvidia-cublas-cu12==12.8.4.1 libcudnn.so.9.1.0.70 OFED-5.8-2.0.3.0 version 1.2.3.4"},
		{"UUIDs and hashes", "GPU-5a1b2c3d-1234-5678-9abc-def012345678 5a1b2c3d12345678 9abcdef012345678", "GPU-5a1b2c3d-1234-5678-9abc-def012345678 guid-4 guid-5"},
		{"hashes", "1.0-dev+gabcdef012345 d41d8cd98f00b204e9800998ecf8427e comm 0x55d0c8a1f2b0 commId 0x6bd2ddc1f3d7a3f0", "1.0-dev+gabcdef012345 d41d8cd98f00b204e9800998ecf8427e comm 0x55d0c8a1f2b0 commId 0x6bd2ddc1f3d7a3f0"},
		{"pointers", "0x00007fff92fc289f ffff8881deadbeef 0x7f1234567890 0:0:0:0:0:0:0:0:2181", "0x00007fff92fc289f ffff8881deadbeef 0x7f1234567890 0:0:0:0:0:0:0:0:2181"},
		{"numbers", "rx_bytes: 123456789012 1234567890123456 0-1-2-3 1-2-3-4 1.2.3", "rx_bytes: 123456789012 1234567890123456 0-1-2-3 1-2-3-4 1.2.3"},
		{"code", "std::string c10::Error ab::cd a::b d::e ::at", "std::string c10::Error ab::cd a::b d::e ::at"},
		{"processes", "ab12:1234:5678 [0] NCCL INFO 3f2a9c:123456:123457 [1]", "ab12:1234:5678 [0] NCCL INFO 3f2a9c:123456:123457 [1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := r.Text([]byte(tt.text))
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := r.Leaks(got); err != nil {
				t.Errorf("%q: %v", got, err)
			}
		})
	}
	_, count := r.Text([]byte("spark-1 192.168.7.9 192.168.7.10 025abeef0001 0x025abe0300ef0001 DB_PASS=x"))
	if diff := cmp.Diff(Count{kindHost: 1, kindIP: 2, kindMAC: 1, kindGUID: 1, "assignment": 1}, count); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := count.String(); got != "1 secret, 5 addresses" {
		t.Errorf("%q", got)
	}
}

// What was missed is found, in any spelling, and what is part of something else is not.
func TestLeaks(t *testing.T) {
	tests := []struct {
		text      string
		addresses bool
		leaks     bool
	}{
		{"so Tr0ub4dor&3x", false, true},
		{"02:5A:BE:EF:00:01", true, true}, {"02-5a-be-ef-00-01.", true, true}, {"02:5a:be:ef:00:01", false, false},
		{"at 192.168.7.9.", true, true}, {"at 192.168.7.99", true, false}, {"11192.168.7.9", true, false}, {"192.168.7.9.1 then 192.168.7.9", true, true},
		{"fe80::5a:beff:feef:1", true, true}, {"127.0.0.1 00:00:00:00:00:00", true, false},
		{"025abeef0001", true, true}, {"025A.BEEF.0001", true, true}, {"n-192-168-7-9", true, true}, {"0x025abe0300ef0001", true, true},
		{"fe80000000000000005abefffeef0001", true, true}, {"fd00--7-9", true, true}, {"?q=Tr0ub4dor%263", false, true},
	}
	for _, tt := range tests {
		if err := redactor(t, tt.addresses).Leaks([]byte(tt.text)); (err != nil) != tt.leaks {
			t.Errorf("%q: %v", tt.text, err)
		}
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

func text(name, text string, err error) Source {
	return Source{name, "what " + name + " holds", func(context.Context) ([]byte, error) { return []byte(text), err }}
}

func TestWrite(t *testing.T) {
	defer func(before int) { maxSource = before }(maxSource)
	maxSource = 64 << 10
	dir := t.TempDir()
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, []byte(strings.Repeat("Tr0ub4dor&3 x\n", maxSource/14+10)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"mlx5_0/fw_ver": "28.45", "mlx5_0/node_guid": "025a:beff:feef:0001"} {
		path := filepath.Join(dir, "ib", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(value+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	sources := []Source{
		text("of-spark-1.txt", "password=Tr0ub4dor&3 at 192.168.7.9\n", nil),
		text("half.json", "{}", errors.New("no answer from 192.168.7.9 with Tr0ub4dor&3")),
		text("none.txt", "", errors.New("not here")),
		File("absent.txt", "nothing", filepath.Join(dir, "absent")),
		File("long.log", "a long log", long),
		Tree("ib.txt", "devices", filepath.Join(dir, "ib"), "*/fw_ver", "*/node_guid", "*/none"),
	}
	var archive bytes.Buffer
	a, err := Gather(t.Context(), "top", "1.0", time.Unix(1e9, 5), sources, redactor(t, true))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Write(&archive); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, archive.Bytes())
	var index Index
	if err := json.Unmarshal([]byte(files["top/index.json"]), &index); err != nil || index.Schema != Schema || index.Build != "1.0" || index.Addresses != "redacted" {
		t.Errorf("the index: %+v, %v", index, err)
	}
	if diff := cmp.Diff(a.Index.Items, index.Items, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the items (-gathered +index):\n%s", diff)
	}
	var list strings.Builder
	if err := a.List(&list); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`FILE BYTES REDACTED HOLDS
index.json %d this list, in detail
of-this-node.txt 28 1 secret, 1 address what of-spark-1.txt holds
half.json 2 what half.json holds; not whole: no answer from ip-1 with (redacted)
none.txt 0 not there: not here
absent.txt 0 not there: open %s/absent: no such file or directory
long.log %d %d secrets a long log; only its end
ib.txt %d 1 address devices
`, len(files["top/index.json"]), dir, len(files["top/long.log"]), strings.Count(files["top/long.log"], secret.Gone), len(files["top/ib.txt"]))
	if diff := cmp.Diff(strings.Fields(want), strings.Fields(list.String())); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	if got := files["top/of-this-node.txt"]; got != "password=(redacted) at ip-1\n" {
		t.Errorf("%q", got)
	}
	if got := files["top/ib.txt"]; !strings.Contains(got, "fw_ver: 28.45\n") || !strings.Contains(got, "node_guid: guid-1\n") {
		t.Errorf("%q", got)
	}
	if n := len(files["top/long.log"]); n < maxSource/2 || n > maxSource || !strings.HasPrefix(files["top/long.log"], secret.Gone) {
		t.Errorf("of a long log there are %d bytes", n)
	}
	errs := map[string]string{}
	for _, i := range a.Index.Items {
		errs[i.Name] = i.Error
	}
	if errs["half.json"] != "no answer from ip-1 with (redacted)" || files["top/half.json"] != "{}" || errs["none.txt"] != "not here" || !strings.Contains(errs["absent.txt"], "no such file") {
		t.Errorf("errors %q", errs)
	}
	for name, content := range files {
		if err := redactor(t, true).Leaks([]byte(name + content)); err != nil {
			t.Errorf("%s %v", name, err)
		}
	}
}

// An archive that would hold a secret is not written.
func TestNothingWithASecret(t *testing.T) {
	r := redactor(t, false)
	r.secrets = append(r.secrets, "redacted") // which is left in place of every other
	a, err := Gather(t.Context(), "top", "1.0", time.Unix(1e9, 0), []Source{text("a", "Tr0ub4dor&3", nil)}, r)
	if err == nil || !strings.Contains(err.Error(), "nothing is written") || strings.Contains(err.Error(), "Tr0ub4dor") || a != nil {
		t.Errorf("%v, and %v", err, a)
	}
}

// Whatever surrounds them, secrets of the environment and addresses of this node are gone.
func FuzzText(f *testing.F) {
	f.Add("token=\"", "\" ")
	f.Add("::", ":1")
	f.Add("a", "-----BEGIN PRIVATE KEY-----")
	f.Add("1.", ".1-")
	f.Fuzz(func(t *testing.T, before, after string) {
		r := redactor(t, true)
		line := before + "Tr0ub4dor&3" + after
		for _, a := range r.left {
			own := string(a.text)
			line += " " + own + " " + after + " n-" + own + ".x " + before
		}
		text, _ := r.Text([]byte(line))
		if err := r.Leaks(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
