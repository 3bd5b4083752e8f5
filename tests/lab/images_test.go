package lab

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCPIO(t *testing.T) {
	var b bytes.Buffer
	c := &cpioWriter{w: &b}
	c.dir("d")
	c.script("d/init", []byte("#!x\n1"))
	c.link("l", "d")
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	head := func(ino, mode, size, name string) string {
		zero := "00000000"
		return "070701" + ino + mode + zero + zero + "00000001" + zero + size + zero + zero + zero + zero + name + zero
	}
	want := head("00000001", "000041ed", "00000000", "00000002") + "d\x00" +
		head("00000002", "000081ed", "00000005", "00000007") + "d/init\x00\x00\x00\x00" + "#!x\n1\x00\x00\x00" +
		head("00000003", "0000a1ff", "00000001", "00000002") + "l\x00" + "d\x00\x00\x00" +
		head("00000000", "00000000", "00000000", "0000000b") + "TRAILER!!!\x00\x00\x00\x00"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestCPIOError(t *testing.T) {
	c := &cpioWriter{w: failingWriter{}}
	c.file("f", []byte("data"))
	if err := c.close(); err == nil || err.Error() != "disk full" {
		t.Errorf("close() = %v, want disk full", err)
	}
}

func TestKernelPackageNames(t *testing.T) {
	depends := parseDepends("linux-image-amd64\n  PreDepends: linux-base\n  Depends: linux-image-6.1.0-56-amd64\n |Depends: x\n")
	if diff := cmp.Diff([]string{"linux-image-6.1.0-56-amd64"}, depends); diff != "" {
		t.Errorf("depends (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{
		"linux-image-6.12.117+deb12-amd64":       true,
		"linux-image-6.1.0-56-amd64":             true,
		"linux-modules-extra-6.8.0-31-generic":   true,
		"linux-image-6.12-amd64":                 false,
		"linux-image-amd64":                      false,
		"linux-headers-6.8.0-31-generic":         false,
		"linux-image-generic-hwe-24.04":          false,
		"linux-modules-nvidia-550-6.8.0-generic": false,
	} {
		if got := kernelPackage.MatchString(name); got != want {
			t.Errorf("%s: concrete kernel package = %v, want %v", name, got, want)
		}
	}
}

// bzImage builds the parts of a kernel image that matter: header, set-up sectors, payload.
func bzImage(payload []byte) []byte {
	b := make([]byte, 3*512)
	b[setupSectsOffset] = 1
	copy(b[headerMagicOffset:], "HdrS")
	binary.LittleEndian.PutUint32(b[payloadOffsetOffset:], 512)
	binary.LittleEndian.PutUint32(b[payloadLengthOffset:], uint32(len(payload)))
	return append(b, payload...)
}

func TestKernelPayload(t *testing.T) {
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write([]byte("\x7fELF kernel"))
	_ = w.Close()
	if got, err := extractKernel(bzImage(gz.Bytes())); err != nil || string(got) != "\x7fELF kernel" {
		t.Errorf("gzip: %q, %v", got, err)
	}
	if got, err := kernelPayload(bzImage([]byte("\xfd7zXZ\x00 data SIZE"))); err != nil || string(got) != "\xfd7zXZ\x00 data " {
		t.Errorf("xz: %q, %v; want it without the appended size", got, err)
	}
	short := bzImage(gz.Bytes())
	for name, bad := range map[string][]byte{
		"empty":     nil,
		"no header": make([]byte, 4096),
		"cut":       short[:len(short)-1],
		"no ELF":    bzImage([]byte("plain data, no kernel")),
	} {
		if _, err := extractKernel(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzKernelImage(f *testing.F) {
	f.Add(bzImage([]byte("12345678")))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := kernelPayload(b); err == nil && len(p) >= len(b) {
			t.Errorf("payload of %d bytes in an image of %d", len(p), len(b))
		}
		hasPVH(b)
		_, _ = moduleDepends(b)
	})
}

func TestModuleOrder(t *testing.T) {
	deps := map[string][]string{"top": {"mid-a", "mid_b", "builtin"}, "mid_a": {"low"}, "mid_b": {"low"}, "low": nil}
	load := func(name string) (*module, error) {
		if name == "builtin" {
			return nil, nil
		}
		d, ok := deps[name]
		if !ok {
			return nil, errors.New("no module " + name)
		}
		return &module{Name: name, Depends: d}, nil
	}
	order, err := moduleOrder([]string{"low", "top", "mid-a"}, load)
	var names []string
	for _, m := range order {
		names = append(names, m.Name)
	}
	if diff := cmp.Diff([]string{"low", "mid_a", "mid_b", "top"}, names); diff != "" || err != nil {
		t.Errorf("order (-want +got):\n%s%v", diff, err)
	}
	deps["mid_b"] = []string{"gone"}
	if _, err := moduleOrder([]string{"top"}, load); err == nil || !strings.Contains(err.Error(), "no module gone (needed by mid_b)") {
		t.Errorf("missing dependency: %v", err)
	}
}

func TestModuleNames(t *testing.T) {
	for file, want := range map[string]string{
		"kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz": "rdma_rxe",
		"crc32-pclmul.ko":      "crc32_pclmul",
		"9pnet_virtio.ko.zst":  "9pnet_virtio",
		"a.b-c.ko":             "a.b_c",
		"already_a_name_alone": "already_a_name_alone",
	} {
		if got := moduleName(file); got != want {
			t.Errorf("moduleName(%q) = %q, want %q", file, got, want)
		}
	}
	info := []byte("license=GPL\x00depends=ib_core,ip6_udp_tunnel\x00name=x\x00")
	if diff := cmp.Diff([]string{"ib_core", "ip6_udp_tunnel"}, parseDependsTag(info)); diff != "" {
		t.Errorf("depends (-want +got):\n%s", diff)
	}
	if got := parseDependsTag([]byte("depends=\x00")); got != nil {
		t.Errorf("no dependencies: %q", got)
	}
}

func TestUntar(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data string) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(data))
	}
	add(tar.Header{Name: "./bin/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	add(tar.Header{Name: "./bin/tool", Typeflag: tar.TypeReg, Mode: 0o755}, "tool")
	add(tar.Header{Name: "./bin/again", Typeflag: tar.TypeLink, Linkname: "./bin/tool"}, "")
	add(tar.Header{Name: "./etc/link", Typeflag: tar.TypeSymlink, Linkname: "../bin/tool"}, "")
	add(tar.Header{Name: "./usr/share/doc/tool/copyright", Typeflag: tar.TypeReg, Mode: 0o644}, "text")
	add(tar.Header{Name: "../outside", Typeflag: tar.TypeReg, Mode: 0o644}, "kept inside")
	_ = w.Close()

	dir := filepath.Join(t.TempDir(), "root")
	root, err := freshRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(root.MkdirAll("usr/bin", 0o755), root.Symlink("usr/bin", "bin")); err != nil {
		t.Fatal(err)
	}
	if err := untar(&b, root, isProgram); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"usr/bin/tool": "tool", "usr/bin/again": "tool", "etc/link": "tool", "outside": "kept inside"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "usr/share")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("documentation was unpacked: %v", err)
	}
}

func TestUntarStaysInside(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "way", Typeflag: tar.TypeSymlink, Linkname: ".."})
	_ = w.WriteHeader(&tar.Header{Name: "way/out", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1})
	_, _ = w.Write([]byte("x"))
	_ = w.Close()
	dir := filepath.Join(t.TempDir(), "root")
	root, err := freshRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := untar(&b, root, isProgram); err == nil {
		t.Error("a file behind a link to the outside: no error")
	}
	if _, err := os.Stat(filepath.Join(dir, "../out")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was written outside the root directory: %v", err)
	}
}
