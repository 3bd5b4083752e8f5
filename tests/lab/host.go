package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// hostPackages are the programs that the lab runs on the host, with the packages that hold them.
var hostPackages = []struct{ program, pkg string }{
	{qemu, "qemu-system-x86"},
	{"xz", "xz-utils"},
	{"zstd", "zstd"},
}

const qemu = "qemu-system-x86_64"

// hostTools installs what is missing on the host when it may, and else says what to install.
func hostTools(ctx context.Context, p *Progress) error {
	var missing []string
	for _, h := range hostPackages {
		if _, err := exec.LookPath(h.program); err != nil {
			missing = append(missing, h.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	command := "apt-get install -y --no-install-recommends " + strings.Join(missing, " ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("the lab needs programs that are not installed; run: sudo %s", command)
	}
	p.Say("installing %s", strings.Join(missing, ", "))
	for _, line := range []string{"apt-get -q update", command} {
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", line, err, out)
		}
	}
	return nil
}

// An Accel is how the virtual CPU runs.
type Accel string

const (
	AccelAuto Accel = "auto"
	AccelKVM  Accel = "kvm"
	AccelTCG  Accel = "tcg" // emulation
)

// ParseAccel reads the value of a flag or variable.
func ParseAccel(s string) (Accel, error) {
	switch a := Accel(s); a {
	case AccelAuto, AccelKVM, AccelTCG:
		return a, nil
	case "":
		return AccelAuto, nil
	}
	return "", fmt.Errorf("accelerator %q; accepted are auto, kvm and tcg", s)
}

// resolve makes auto definite: KVM where the CPU has virtualisation and the device opens. The device alone proves nothing: a
// host can offer one that runs no ordinary kernel at a bearable speed.
func (a Accel) resolve() Accel {
	if a != AccelAuto && a != "" {
		return a
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !hasVirtualisation(string(info)) {
		return AccelTCG
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return AccelTCG
	}
	_ = f.Close()
	return AccelKVM
}

func hasVirtualisation(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		if key, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "flags" {
			for f := range strings.FieldsSeq(flags) {
				if f == "vmx" || f == "svm" {
					return true
				}
			}
			return false
		}
	}
	return false
}

// qemuArgs are the machine options that depend on the accelerator. An emulated machine has one CPU, or needs no more speed:
// one thread does, and takes the emulator's simpler ways through atomic instructions.
func (a Accel) qemuArgs() []string {
	if a == AccelKVM {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	return []string{"-accel", "tcg,thread=single,tb-size=256", "-cpu", "qemu64"}
}

// TimeScale is the factor by which deadlines are longer in a machine of this kind.
func (a Accel) TimeScale() string {
	if a == AccelKVM {
		return "1"
	}
	return "10"
}

// ModuleRoot is the directory of go.mod, from the working directory upwards, or "." when there is none.
func ModuleRoot() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, serr := os.Stat(filepath.Join(dir, "go.mod")); serr == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	return "."
}
