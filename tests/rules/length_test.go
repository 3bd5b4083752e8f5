package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// maxBody is how many lines a function's body may have: what is read at once.
const maxBody = 60

func TestFunctionsAreShort(t *testing.T) {
	for _, files := range sources(t) {
		for _, path := range files {
			if isTest(path) || strings.HasPrefix(filepath.Base(path), "z") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				var body *ast.BlockStmt
				name := "a function literal"
				switch n := n.(type) {
				case *ast.FuncDecl:
					body, name = n.Body, n.Name.Name
				case *ast.FuncLit:
					body = n.Body
				}
				if body == nil { // assembly has none
					return true
				}
				// The lines between the braces.
				if lines := fset.Position(body.Rbrace).Line - fset.Position(body.Lbrace).Line - 1; lines > maxBody {
					t.Errorf("%s: %s has %d lines; at most %d are allowed", fset.Position(n.Pos()), name, lines, maxBody)
				}
				return true
			})
		}
	}
}
