package rules

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// timers are the functions that make something happen later.
var timers = map[string][]string{
	"time":    {"After", "AfterFunc", "NewTicker", "NewTimer", "Sleep", "Tick"},
	"context": {"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
}

// timerUsers says which packages of the plugin may use the timers of package time, and what for. A simulation cannot hold those
// back while a process is stopped, so the others use package transport/clock.
var timerUsers = map[string]string{
	"transport/clock":  "its zero value",
	"transport/forkfd": "the wait for a fork, which a simulation does not have",
	"transport/stats":  "the page of another process, which changes while it is read",
	"transport/window": "the socket that hands out that page",
}

func TestTimersAreOfTheClock(t *testing.T) {
	used := map[string]bool{}
	eachOfPlugin(t, func(dir string, fset *token.FileSet, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := sel.X.(*ast.Ident)
			if !ok || of.Obj != nil || !slices.Contains(timers[of.Name], sel.Sel.Name) {
				return true
			}
			used[dir] = true
			if timerUsers[dir] == "" {
				t.Errorf("%s: %s.%s in %s: use the transport/clock.Clock of the machine, which a simulation holds back while the process is stopped",
					filepath.Base(fset.Position(n.Pos()).String()), of.Name, sel.Sel.Name, dir)
			}
			return true
		})
	})
	for dir := range timerUsers {
		if !used[dir] {
			t.Errorf("%s uses the timers of package time no more: take it off the table", dir)
		}
	}
}
