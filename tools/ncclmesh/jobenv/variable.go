package jobenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/secret"
)

// A Variable is one that a job in this environment has.
type Variable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin,omitempty"` // the file that it is set in; "" for the environment itself
}

// Variables are what NCCL has after it has read its files, in order of their names.
type Variables []Variable

// Get returns a variable, and whether it is set.
func (v Variables) Get(name string) (Variable, bool) {
	i := slices.IndexFunc(v, func(v Variable) bool { return v.Name == name })
	if i < 0 {
		return Variable{}, false
	}
	return v[i], true
}

// Getenv returns a variable's value, "" where it is not set.
func (v Variables) Getenv(name string) string {
	x, _ := v.Get(name)
	return x.Value
}

// Read returns the variables of an environment ("NAME=value") and, as NCCL does it, what its files say where the
// environment says nothing: the one that NCCL_CONF_FILE names or else ~/.nccl.conf, then etc/nccl.conf below root. A file
// that is not there says nothing; one that cannot be read is an error, and the rest is returned all the same.
func Read(environ []string, root string) (Variables, error) {
	var v Variables
	for _, kv := range environ {
		v.add(kv, "")
	}
	user := v.Getenv("NCCL_CONF_FILE")
	if home := v.Getenv("HOME"); user == "" && home != "" {
		user = filepath.Join(home, ".nccl.conf")
	}
	var errs []error
	for _, path := range []string{user, filepath.Join(root, "etc/nccl.conf")} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("NCCL's file of settings: %w", err))
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
				v.add(line, path)
			}
		}
	}
	slices.SortFunc(v, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return v, errors.Join(errs...)
}

// add adds a variable. The first to say something holds, but that of the environment itself, where the last does, as with
// the shell.
func (v *Variables) add(kv, origin string) {
	name, value, ok := strings.Cut(kv, "=")
	if !ok || name == "" {
		return
	}
	i := slices.IndexFunc(*v, func(v Variable) bool { return v.Name == name })
	switch {
	case i < 0:
		*v = append(*v, Variable{name, value, origin})
	case origin == "":
		(*v)[i].Value = value
	}
}

// Shown is a variable's value as people may see it: not that of a key, a token or a password.
func Shown(name, value string) string {
	if value != "" && secret.Name(name) {
		return "(set)"
	}
	return value
}
