package library

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"ncclmesh/handshake"
)

// Name is the library's file name.
const Name = "libnccl-net-mesh.so"

// mainPackage is what the Go linker writes into this project's library, and into no other.
const mainPackage = "ncclmesh/capi"

// ErrOther is what [Identify] says of a file that is not this project's library.
var ErrOther = errors.New("not this project's library, which has the same file name as another's")

// A Library is a file of the plugin's name.
type Library struct {
	Path   string
	ByName bool  // the dynamic linker finds it by its name alone
	Same   bool  // it is of the same build as this program
	Err    error // why it cannot be used; nil if it can
}

// Find returns what there is under the plugin's name: in the order in which the dynamic linker looks for it, then what
// lies where it looks only after ldconfig, then in the user's own directory, then with the program that runs, as in a build
// directory or an unpacked tarball.
// A file is found once.
func Find(getenv func(string) string) []Library {
	others := []string{"/usr/local/lib/" + triplet(), "/usr/local/lib"}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		others = append(others, filepath.Join(home, ".local/lib"))
	}
	if self, err := os.Executable(); err == nil {
		others = append(others, filepath.Dir(self), filepath.Join(filepath.Dir(self), "../lib"))
	}
	return find(Searched(getenv), others)
}

// triplet is Debian's name of this machine.
func triplet() string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
}

// Searched are the directories that the dynamic linker looks in without more ado.
func Searched(getenv func(string) string) []string {
	dirs := slices.DeleteFunc(filepath.SplitList(getenv("LD_LIBRARY_PATH")), func(dir string) bool { return !filepath.IsAbs(dir) })
	return append(dirs, "/lib/"+triplet(), "/usr/lib/"+triplet(), "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

func find(searched, others []string) []Library {
	var found []Library
	var files []os.FileInfo
	for i, dir := range slices.Concat(searched, others) {
		path := filepath.Join(dir, Name)
		file, err := os.Stat(path)
		if err != nil || slices.ContainsFunc(files, func(f os.FileInfo) bool { return os.SameFile(f, file) }) {
			continue
		}
		l := Library{Path: path, ByName: i < len(searched)}
		l.Same, l.Err = Identify(path)
		found, files = append(found, l), append(files, file)
	}
	return found
}

// Named returns the library that somebody has named.
func Named(path string) (Library, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Library{}, err
	}
	same, err := Identify(path)
	return Library{Path: path, Same: same}, err
}

// Identify says whether a file is this project's library for this machine, and then whether it is of the same build as
// this program.
func Identify(path string) (same bool, err error) {
	info, err := buildinfo.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, fmt.Errorf("%s does not exist", path)
	case errors.Is(err, os.ErrPermission):
		return false, err
	case err != nil || info.Path != mainPackage:
		return false, fmt.Errorf("%s: %w", path, ErrOther)
	}
	for _, s := range info.Settings {
		if s.Key == "GOARCH" && s.Value != runtime.GOARCH {
			return false, fmt.Errorf("%s is for %s; this machine is %s", path, s.Value, runtime.GOARCH)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	return names(text, handshake.Build()), nil
}

// names reports whether a build's name is in a library. A clean build's is the beginning of a dirty one's.
func names(library []byte, build string) bool {
	const dirty = "-dirty"
	return bytes.Contains(library, []byte(build)) && (strings.HasSuffix(build, dirty) || !bytes.Contains(library, []byte(build+dirty)))
}
