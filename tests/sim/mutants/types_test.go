package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packages are the product's packages, by import path.
type packages map[string]listed

// listed is a package as the compiler sees it: Export is the file with its exported declarations.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages lists the packages of the transport and all that they import. It compiles those that are not compiled yet.
func listPackages(t *testing.T) packages {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./transport/...", "./ncclnet/...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	all := packages{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// check returns an error unless the packages of the changed files have valid types. Each is checked beside unchanged ones.
func (all packages) check(changed map[string]string) error {
	var errs []error
	checked := map[string]bool{}
	for name := range changed {
		if path := "ncclmesh/" + filepath.Dir(name); !checked[path] {
			checked[path] = true
			errs = append(errs, all.checkPackage(path, changed))
		}
	}
	return errors.Join(errs...)
}

func (all packages) checkPackage(path string, changed map[string]string) error {
	p, ok := all[path]
	if !ok {
		return fmt.Errorf("%s is no package of the transport", path)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		text, ok := changed[filepath.Join(strings.TrimPrefix(path, "ncclmesh/"), name)]
		if !ok {
			b, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return err
			}
			text = string(b)
		}
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(all[path].Export) })
	_, err := (&types.Config{Importer: compiled}).Check(path, fset, files, nil)
	return err
}
