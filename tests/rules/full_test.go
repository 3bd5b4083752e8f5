package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cover is a test that the gate has, as it is named: the directory of its package, and its function.
var cover = regexp.MustCompile(`([a-z0-9/]+) (Test\w+)`)

// What the gate leaves out says which tests have its subject there: they exist, and are not left out themselves.
func TestLeftOutIsCovered(t *testing.T) {
	type place struct{ dir, name string }
	tests := map[place]bool{} // whether the first thing that it does is to be left out
	type claim struct {
		at, text string
		in       place
	}
	var claims []claim
	for dir, files := range sources(t) {
		for _, path := range files {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				in := place{dir, fn.Name.Name}
				if strings.HasPrefix(in.name, "Test") {
					tests[in] = len(fn.Body.List) > 0 && isFull(fn.Body.List[0])
				}
				ast.Inspect(fn.Body, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok || !isFull(&ast.ExprStmt{X: call}) || len(call.Args) != 2 {
						return true
					}
					at := fset.Position(call.Pos())
					if dir == "tests/require" {
						return true
					}
					first := call.Args[1]
					if sum, ok := first.(*ast.BinaryExpr); ok {
						first = sum.X
					}
					lit, ok := first.(*ast.BasicLit)
					if !ok {
						t.Errorf("%v: what is left out names its cover in a text of its own", at)
						return true
					}
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					claims = append(claims, claim{filepath.Base(at.Filename) + ":" + strconv.Itoa(at.Line), text, in})
					return true
				})
			}
		}
	}
	if len(claims) < 30 {
		t.Fatalf("only %d tests are left out of the gate: the search is broken", len(claims))
	}
	for _, c := range claims {
		named := cover.FindAllStringSubmatch(c.text, -1)
		if len(named) == 0 && !strings.Contains(c.text, "the same test") {
			t.Errorf("%s: %q names no test", c.at, c.text)
		}
		for _, m := range named {
			out, known := tests[place{m[1], m[2]}]
			switch {
			case !known:
				t.Errorf("%s: there is no test %s of %s", c.at, m[2], m[1])
			case out:
				t.Errorf("%s: %s of %s is left out of the gate itself", c.at, m[2], m[1])
			}
		}
	}
}

// isFull reports whether a statement is a call of require.Full.
func isFull(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := e.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Full" {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && x.Name == "require"
}

// Only package require reads FULL from the environment, so that it means the same to all tests.
func TestFullIsReadOnce(t *testing.T) {
	read := regexp.MustCompile(`(Getenv|LookupEnv)\("FULL"\)`)
	var in []string
	for dir, files := range sources(t) {
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if read.Match(text) {
				in = append(in, dir+"/"+filepath.Base(path))
			}
		}
	}
	if !slices.Equal(in, []string{"tests/require/require.go"}) {
		t.Errorf("FULL is read in %v", in)
	}
}
