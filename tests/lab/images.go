package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/internal/apt"
)

// Images is what machines boot from. It holds a shared lock on its directory until Close.
type Images struct {
	dir  string
	lock *os.File
	manifest
}

// A manifest says what the images were made of; the file exists only beside complete images.
type manifest struct {
	Recipe   string // hash of all that decides the images but the packages' versions
	Release  string // of the kernel
	Packages []string
}

// kernels are the meta packages to look for a kernel, best first.
var kernels = []string{"linux-image-6.12-amd64", "linux-image-amd64", "linux-image-generic"}

// programs are the packages of the guest, beside what they depend on.
var programs = []string{
	"bash", "busybox-static", "coreutils", "grep", "mawk", "sed",
	"iproute2", "ibverbs-providers", "ibverbs-utils", "iperf3", "libibverbs1", "perftest",
}

// modules that every machine loads, in this order. rdma_rxe asks for its checksum by a name that only the first provides.
var modules = []string{
	"crc32_generic?", "virtio_pci", "virtio_net", "virtio_console", "virtio_rng?", "9pnet_virtio", "9p", "overlay",
	"veth", "sch_netem", "ib_uverbs", "rdma_ucm", "rdma_rxe",
}

//go:embed guest
var guest embed.FS

const (
	kernelFile    = "vmlinux"
	initramfsFile = "initramfs"
	rootDir       = "root"
	manifestFile  = "lab.json"
)

// Prepare returns the images in dir, making them when they are missing or of another recipe. The first time takes a download of
// about 130 MB; later it is instant.
func Prepare(ctx context.Context, dir string, p *Progress) (*Images, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("the lab runs on amd64 hosts; this is %s", runtime.GOARCH)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	im := &Images{dir: dir, lock: lock}
	if err := im.prepare(ctx, p); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return im, nil
}

// Close gives the images free for remaking.
func (im *Images) Close() error { return im.lock.Close() }

func (im *Images) prepare(ctx context.Context, p *Progress) error {
	if err := hostTools(ctx, p); err != nil {
		return err
	}
	if err := flock(im.lock, unix.LOCK_SH); err != nil {
		return err
	}
	if im.load() == nil {
		return nil
	}
	if flock(im.lock, unix.LOCK_EX|unix.LOCK_NB) != nil {
		p.Say("waiting for another lab that uses %s", im.dir)
		if err := flock(im.lock, unix.LOCK_EX); err != nil {
			return err
		}
	}
	if im.load() != nil { // not made by another process meanwhile
		if err := im.make(ctx, p); err != nil {
			return fmt.Errorf("prepare the lab in %s: %w", im.dir, err)
		}
	}
	return flock(im.lock, unix.LOCK_SH)
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// load reads the manifest and fails when the images are not those of this recipe.
func (im *Images) load() error {
	b, err := os.ReadFile(filepath.Join(im.dir, manifestFile))
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	if m.Recipe != recipe() {
		return errors.New("other recipe")
	}
	im.manifest = m
	return nil
}

// recipe is a hash of what the images are made by, and of the host's release, whose C library the guest must share for
// programs that are built here.
func recipe() string {
	h := sha256.New()
	release, _ := os.ReadFile("/etc/os-release")
	fmt.Fprintf(h, "1 %q %q %q %s", kernels, programs, modules, release)
	return hex.EncodeToString(h.Sum(nil))
}

func (im *Images) make(ctx context.Context, p *Progress) error {
	_ = os.Remove(filepath.Join(im.dir, manifestFile))
	a, err := newPackages(im.dir)
	if err != nil {
		return err
	}
	if err := a.refresh(ctx, p); err != nil {
		return err
	}
	kernelDebs, err := a.kernel(ctx, kernels)
	if err != nil {
		return err
	}
	guestDebs, err := a.closure(ctx, programs)
	if err != nil {
		return err
	}
	if _, err := a.download(ctx, p, "download kernel "+kernelDebs[0].Version, kernelDebs); err != nil {
		return err
	}
	debs, err := a.download(ctx, p, fmt.Sprintf("download %d packages of the guest", len(guestDebs)), guestDebs)
	if err != nil {
		return err
	}
	if err := im.makeRoot(ctx, p, debs, guestDebs); err != nil {
		return err
	}
	if err := im.makeKernel(ctx, p, debs, kernelDebs); err != nil {
		return err
	}
	im.Recipe, im.Packages = recipe(), nil
	for _, d := range append(kernelDebs, guestDebs...) {
		im.Packages = append(im.Packages, d.Name+"="+d.Version)
	}
	b, err := json.MarshalIndent(im.manifest, "", "\t")
	if err != nil {
		return err
	}
	tmp := filepath.Join(im.dir, manifestFile+".new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(im.dir, manifestFile))
}

// makeRoot unpacks the guest's root directory. Nothing is configured: no maintainer script runs.
func (im *Images) makeRoot(ctx context.Context, p *Progress, dir string, debs []apt.Deb) error {
	path := filepath.Join(im.dir, rootDir)
	root, err := freshRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, d := range []string{"bin", "lib", "lib64", "sbin"} { // one /usr, whatever the packages say
		if err := errors.Join(root.MkdirAll("usr/"+d, 0o755), root.Symlink("usr/"+d, d)); err != nil {
			return err
		}
	}
	meter := p.Meter("unpack the guest", int64(len(debs))<<20)
	for i, d := range debs {
		if err := unpack(ctx, filepath.Join(dir, d.File), root, isProgram); err != nil {
			return err
		}
		meter.Set(int64(i+1) << 20)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(path, "bin/busybox"), "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox of the guest: %w", err)
	}
	if err := root.MkdirAll("usr/lib/busybox", 0o755); err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(string(out)) {
		if err := root.Symlink("/bin/busybox", "usr/lib/busybox/"+applet); err != nil {
			return err
		}
	}
	p.Say("unpacked %d packages", len(debs))
	return errors.Join(
		root.MkdirAll("etc", 0o755),
		root.WriteFile("etc/passwd", []byte("root:x:0:0:root:/root:/bin/bash\n"), 0o644),
		root.WriteFile("etc/group", []byte("root:x:0:\n"), 0o644),
		root.WriteFile("etc/nsswitch.conf", []byte("passwd: files\ngroup: files\nhosts: files\n"), 0o644),
	)
}

// isProgram leaves out of a package what only people read.
func isProgram(name string) bool {
	for _, dir := range []string{"usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/lintian/", "usr/share/info/"} {
		if strings.HasPrefix(name, dir) {
			return false
		}
	}
	return true
}

// makeKernel takes kernel and initramfs out of the kernel's packages.
func (im *Images) makeKernel(ctx context.Context, p *Progress, dir string, debs []apt.Deb) error {
	path := filepath.Join(im.dir, "kernel.tmp")
	root, err := freshRoot(path)
	if err != nil {
		return err
	}
	defer os.RemoveAll(path)
	defer root.Close()
	for _, d := range debs {
		p.Say("unpack %s", d.Name)
		err := unpack(ctx, filepath.Join(dir, d.File), root, func(name string) bool {
			name = strings.TrimPrefix(name, "usr/")
			return strings.HasPrefix(name, "boot/vmlinuz-") || strings.HasPrefix(name, "lib/modules/")
		})
		if err != nil {
			return err
		}
	}
	bzImages, err := filepath.Glob(filepath.Join(path, "boot/vmlinuz-*"))
	if err != nil || len(bzImages) != 1 {
		return fmt.Errorf("packages of kernel %s: %d images below /boot, expected 1", debs[0].Version, len(bzImages))
	}
	im.Release = strings.TrimPrefix(filepath.Base(bzImages[0]), "vmlinuz-")
	bz, err := os.ReadFile(bzImages[0])
	if err != nil {
		return err
	}
	kernel, err := extractKernel(bz)
	if err != nil {
		return err
	}
	if !hasPVH(kernel) {
		kernel = bz
	}
	if err := os.WriteFile(filepath.Join(im.dir, kernelFile), kernel, 0o644); err != nil {
		return err
	}
	mods, err := findModules(path)
	if err != nil {
		return err
	}
	busybox, err := os.ReadFile(filepath.Join(im.dir, rootDir, "bin/busybox"))
	if err != nil {
		return err
	}
	return writeInitramfs(filepath.Join(im.dir, initramfsFile), im.Release, mods, busybox)
}

// findModules returns the lab's modules from an unpacked kernel.
func findModules(path string) ([]module, error) {
	files, builtin := make(map[string]string), make(map[string]bool)
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "modules.builtin" {
			b, err := os.ReadFile(name)
			for line := range strings.Lines(string(b)) {
				builtin[moduleName(strings.TrimSpace(line))] = true
			}
			return err
		}
		if strings.Contains(d.Name(), ".ko") {
			files[moduleName(d.Name())] = name
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var want []string
	for _, m := range modules {
		name, optional := strings.CutSuffix(m, "?")
		if !optional || files[moduleName(name)] != "" {
			want = append(want, name)
		}
	}
	return moduleOrder(want, func(name string) (*module, error) {
		if builtin[name] {
			return nil, nil
		}
		b, err := os.ReadFile(files[name])
		if err != nil {
			return nil, fmt.Errorf("the kernel has no module %s", name)
		}
		ko, err := decompress(b)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		deps, err := moduleDepends(ko)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		return &module{Name: name, Depends: deps, Data: ko}, nil
	})
}

// writeInitramfs writes the constant part of the initramfs: busybox, the modules, and the index by which modprobe loads them
// all in one go.
func writeInitramfs(file, release string, mods []module, busybox []byte) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	c := &cpioWriter{w: w}
	modDir := "lib/modules/" + release
	for _, d := range []string{"bin", "proc", "sys", "dev", "lower", "rw", "new", "lab", "lib", "lib/modules", modDir} {
		c.dir(d)
	}
	c.script("bin/busybox", busybox)
	c.link("bin/modprobe", "busybox")
	var dep, list bytes.Buffer
	for _, m := range mods {
		c.file(modDir+"/"+m.Name+".ko", m.Data)
		fmt.Fprintf(&list, "%s\n", m.Name)
		fmt.Fprintf(&dep, "%s.ko:", m.Name)
		for i := len(m.Depends) - 1; i >= 0; i-- {
			fmt.Fprintf(&dep, " %s.ko", moduleName(m.Depends[i]))
		}
		dep.WriteByte('\n')
	}
	c.file(modDir+"/modules.dep", dep.Bytes())
	c.file("modules", list.Bytes())
	return errors.Join(c.close(), w.Flush(), f.Close())
}

func freshRoot(path string) (*os.Root, error) {
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o755)); err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}
