package rules

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// No structure of the plugin embeds an interface of the plugin: it would seem to have each method of that, and a call of one
// that nobody wrote would end the process.
func TestInterfacesAreNotEmbedded(t *testing.T) {
	type structure struct {
		dir, at string
		file    *ast.File
		node    *ast.StructType
	}
	interfaces := map[string]bool{} // by directory and name
	var all []structure
	eachOfPlugin(t, func(dir string, fset *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if _, ok := n.Type.(*ast.InterfaceType); ok {
					interfaces[dir+"."+n.Name.Name] = true
				}
			case *ast.StructType:
				all = append(all, structure{dir, fset.Position(n.Pos()).String(), f, n})
			}
			return true
		})
	})
	if len(interfaces) < 10 || len(all) < 100 {
		t.Fatalf("found %d interfaces and %d structures of the plugin, which are too few", len(interfaces), len(all))
	}
	embedded := 0
	for _, s := range all {
		for _, field := range s.node.Fields.List {
			if len(field.Names) > 0 {
				continue
			}
			embedded++
			name := ""
			switch x := field.Type.(type) {
			case *ast.Ident:
				name = s.dir + "." + x.Name
			case *ast.SelectorExpr:
				name = directory(s.file, x.X.(*ast.Ident).Name) + "." + x.Sel.Name
			}
			if interfaces[name] {
				t.Errorf("%s: the structure embeds the interface %s; give the field a name, and call its methods by that", s.at, name)
			}
		}
	}
	if embedded == 0 {
		t.Error("found no embedded field at all")
	}
}

// directory returns where the package lies that a file knows by a name, from the root of the repository.
func directory(f *ast.File, name string) string {
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		dir, ok := strings.CutPrefix(path, "ncclmesh/")
		if !ok {
			continue
		}
		if spec.Name != nil && spec.Name.Name == name || spec.Name == nil && dir[strings.LastIndexByte(dir, '/')+1:] == name {
			return dir
		}
	}
	return ""
}
