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

// Each package of a kind of lane says which of its types are the port, the domain and the carrier, so that the compiler names a method that
// one of them lacks where the type is, and a reader finds them.
func TestKindsOfLanesAssertTheirInterfaces(t *testing.T) {
	const kinds = "transport/lane/"
	asserted := map[string]map[string]bool{} // by directory, the interfaces of package lane
	eachOfPlugin(t, func(dir string, _ *token.FileSet, f *ast.File) {
		if !strings.HasPrefix(dir, kinds) {
			return
		}
		if asserted[dir] == nil {
			asserted[dir] = map[string]bool{}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].Name == "_" {
				if of, ok := v.Type.(*ast.SelectorExpr); ok {
					asserted[dir][of.Sel.Name] = true
				}
			}
			return true
		})
	})
	if len(asserted) < 3 {
		t.Fatalf("found %d packages below %s, which are too few", len(asserted), kinds)
	}
	for dir, all := range asserted {
		for _, name := range []string{"Port", "Domain", "Carrier"} {
			if !all[name] {
				t.Errorf("%s does not say which type is its lane.%s: write `var _ lane.%s = (*type)(nil)`", dir, name, name)
			}
		}
	}
}
