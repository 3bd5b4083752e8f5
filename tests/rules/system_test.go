package rules

import (
	"go/ast"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// callers says which packages of the plugin may call the kernel or open sockets, and what for. A simulation replaces
// transport/sock and the driver of ibv; what the others ask for it does without, or is told by the options of a transport.
var callers = map[string]string{
	"ibv":                    "the driver of libibverbs, its waiter, and memory outside the Go heap",
	"transport":              "the network namespace, as the node's identity",
	"transport/forkfd":       "copies of descriptors of DMA-BUFs",
	"transport/limit":        "how many descriptors the process may have",
	"transport/relay/engine": "the processor time of its thread",
	"transport/sock":         "sockets",
	"transport/stats":        "the page that other processes look at",
	"transport/topology":     "sysfs and netlink",
	"transport/window":       "the socket that hands out that page",
}

// system matches calls that ask the kernel for something, by package and name.
var system = map[string]*regexp.Regexp{
	"net":                   regexp.MustCompile(`^(Dial|Listen|File|Interface|Resolve|Lookup)`),
	"syscall":               regexp.MustCompile(`^[A-Z]`),
	"golang.org/x/sys/unix": regexp.MustCompile(`^[A-Z]`),
}

// harmless are those of package syscall and its like that ask for nothing.
var harmless = []string{"Errno", "ErrnoName", "Signal"}

func TestWhoCallsTheSystem(t *testing.T) {
	used := map[string]bool{}
	eachOfPlugin(t, func(dir string, fset *token.FileSet, f *ast.File) {
		names := map[string]*regexp.Regexp{}
		for _, spec := range f.Imports {
			if p := strings.Trim(spec.Path.Value, `"`); system[p] != nil {
				names[path.Base(p)] = system[p]
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := sel.X.(*ast.Ident)
			if !ok || of.Obj != nil || names[of.Name] == nil || !names[of.Name].MatchString(sel.Sel.Name) || slices.Contains(harmless, sel.Sel.Name) {
				return true
			}
			used[dir] = true
			if callers[dir] == "" {
				t.Errorf("%s: %s.%s in %s, which may not call the system: do it behind transport/sock or a driver of ibv, or add the package to the table with what it needs",
					filepath.Base(fset.Position(n.Pos()).String()), of.Name, sel.Sel.Name, dir)
			}
			return true
		})
	})
	for dir := range callers {
		if !used[dir] {
			t.Errorf("%s calls the system no more: take it off the table", dir)
		}
	}
}
