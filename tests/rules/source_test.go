package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "ncclmesh"

// imports says what each package may import beside the standard library; tests
// are free. A new edge is a decision: it belongs here, and in the review.
var imports = map[string][]string{
	"capi":                          {"C", "capi/host", "ncclnet", "ncclnet/rma", "transport/board", "transport/lane", "tuner"},
	"capi/host":                     {"C", "transport/forkfd"},
	"capi/library":                  {"C", "capi/host", "comm", "comm/fifo", "handshake", "transport", "transport/lane", "transport/onesided"},
	"comm":                          {"comm/bootstrap", "comm/fifo", "comm/pace", "cuda", "guard", "handshake", "ibv", "logtext", "ncclnet/config", "printable", "transport", "transport/conn", "transport/fault", "transport/lane", "transport/onesided", "transport/stage", "transport/turn"},
	"comm/bootstrap":                {"comm/pace", "guard", "handshake", "ibv", "printable", "random", "transport", "transport/accept", "transport/clock", "transport/conn", "transport/fault", "transport/lane", "transport/sock", "transport/stage", "transport/turn"},
	"comm/fifo":                     {"ibv"},
	"comm/pace":                     {"transport/clock"},
	"ncclnet":                       {"cuda", "guard", "handshake", "logtext", "ncclnet/config", "ncclnet/gpudirect", "ncclnet/rma", "printable", "transport", "transport/clock", "transport/fault", "transport/lane", "transport/conn", "transport/topology", "transport/turn", "tuner"},
	"ncclnet/gpudirect":             {"cuda"},
	"ncclnet/rma":                   {"guard", "handshake", "ibv", "transport", "transport/clock", "transport/conn", "transport/fault", "transport/lane", "transport/onesided"},
	"ncclnet/config":                {"handshake", "ncclnet/gpudirect", "transport", "transport/discovery", "transport/lane/tcp", "transport/sock", "transport/topology", "tuner"},
	"tuner":                         {},
	"transport":                     {"guard", "handshake", "ibv", "printable", "random", "transport/conn", "transport/clock", "transport/control", "transport/copier", "transport/threads", "transport/dataport", "transport/fault", "transport/discovery", "transport/lane", "transport/lane/tcp", "transport/lane/verbs", "transport/limit", "transport/overlay", "transport/path", "transport/relay", "transport/sock", "transport/stats", "transport/topology", "transport/window", sysUnix},
	"transport/path":                {"handshake", "transport/conn", "transport/clock", "transport/control", "transport/discovery", "transport/fault", "transport/lane", "transport/overlay", "transport/routing", "transport/topology"},
	"transport/overlay":             {"handshake", "random", "transport/clock", "transport/control", "transport/dataport", "transport/discovery", "transport/fault", "transport/lane", "transport/lane/circuit", "transport/lane/verbs", "transport/relay", "transport/relay/engine", "transport/routing", "transport/sock", "transport/stats", "transport/topology"},
	"transport/conn":                {"guard", "handshake", "printable", "transport/board", "transport/clock", "transport/conn/failover", "transport/control", "transport/threads", "transport/fault", "transport/lane", "transport/limit", "transport/stage", "transport/stats", "transport/turn"},
	"transport/conn/failover":       {},
	"transport/onesided":            {"ibv", "transport/conn", "transport/copier", "transport/fault", "transport/lane", "transport/turn"},
	"transport/lane":                {"handshake", "ibv", "transport/board", "transport/control", "transport/fault", "transport/forkfd", "transport/stats", "transport/topology"},
	"transport/lane/verbs":          {"guard", "handshake", "ibv", "random", "transport/board", "transport/threads", "transport/fault", "transport/forkfd", "transport/lane", "transport/topology", "transport/turn"},
	"transport/lane/tcp":            {"handshake", "ibv", "random", "transport/board", "transport/clock", "transport/dataport", "transport/fault", "transport/lane", "transport/sock", "transport/topology", sysUnix},
	"transport/relay":               {"guard", "handshake", "random", "transport/clock", "transport/control", "transport/dataport", "transport/lane", "transport/sock", "transport/stage", "transport/stats", "transport/topology", timeRate},
	"transport/lane/circuit":        {"handshake", "ibv", "transport/board", "transport/fault", "transport/lane", "transport/lane/verbs", "transport/relay/hop", "transport/topology", "transport/turn"},
	"transport/relay/hop":           {"handshake", "ibv", "transport/lane"},
	"transport/copier":              {"ibv", "transport/clock", "transport/fault", "transport/lane", "transport/lane/verbs", "transport/turn"},
	"transport/relay/engine":        {"guard", "handshake", "ibv", "transport/clock", "transport/threads", "transport/fault", "transport/forkfd", "transport/lane", "transport/lane/verbs", "transport/relay", "transport/relay/hop", "transport/stats", "transport/turn", sysUnix},
	"transport/board":               {"ibv"},
	"transport/clock":               {},
	"transport/threads":             {"guard", "transport/clock"},
	"transport/fault":               {"guard"},
	"transport/stats":               {"printable", "transport/forkfd", sysUnix},
	"transport/window":              {"guard", "transport/forkfd", sysUnix},
	"transport/control":             {"guard", "handshake", "random", "transport/accept", "transport/clock", "transport/limit", "transport/sock", "transport/stage", timeRate},
	"transport/dataport":            {"handshake", "random", "transport/accept", "transport/clock", "transport/limit", "transport/sock", sysUnix},
	"transport/limit":               {sysUnix},
	"transport/stage":               {},
	"transport/turn":                {},
	"transport/accept":              {"guard", "random", "transport/clock", "transport/limit", "transport/sock"},
	"transport/discovery":           {"guard", "handshake", "random", "transport/clock", "transport/limit", "transport/sock", sysUnix, timeRate},
	"transport/routing":             {"handshake", "random", "transport/clock", "transport/fault", "transport/discovery"},
	"transport/topology":            {"guard", "handshake", sysUnix, netlink},
	"transport/forkfd":              {sysUnix},
	"transport/sock":                {"transport/forkfd", "transport/limit", sysUnix},
	"handshake":                     {"printable", "random"},
	"guard":                         {},
	"logtext":                       {},
	"printable":                     {},
	"random":                        {},
	"ibv":                           {"guard", "internal/ccall", sysUnix, purego},
	"internal/ccall":                {purego},
	"cuda":                          {"internal/ccall", purego},
	"tools/abigen":                  {},
	"tools/benchibv":                {"ibv", "transport/topology", sysUnix},
	"tools/bench":                   {"tests/fabric", "tests/lab", "tests/nccl", "tuner", sysUnix, plot, plot + "/plotter", plot + "/vg"},
	"docs/checks":                   {},
	"tools/ncclmesh":                {"docs/checks", "handshake", "ncclnet/config", "printable", "tools/ncclmesh/bench", "tools/ncclmesh/doctor", "tools/ncclmesh/doctor/facts", "tools/ncclmesh/doctor/gather", "tools/ncclmesh/fleet", "tools/ncclmesh/jobenv", "tools/ncclmesh/launch", "tools/ncclmesh/library", "tools/ncclmesh/manual", "tools/ncclmesh/meet", "tools/ncclmesh/netplan", "tools/ncclmesh/report", "tools/ncclmesh/secret", "tools/ncclmesh/setup", "tools/ncclmesh/status", "tools/ncclmesh/topo", "transport", "transport/relay", "transport/topology", sysUnix, cobra, renameio, term},
	"tools/ncclmesh/doctor":         {"github.com/agnivade/levenshtein", "handshake", "tools/ncclmesh/doctor/facts", "tools/ncclmesh/rate", "tools/ncclmesh/topo", "transport/topology"},
	"tools/ncclmesh/doctor/facts":   {"handshake", "tools/ncclmesh/rate", "tools/ncclmesh/topo", "transport/fault", "transport/topology", sysUnix},
	"tools/ncclmesh/doctor/gather":  {"handshake", "ibv", "ncclnet/config", "tools/ncclmesh/doctor/facts", "tools/ncclmesh/fleet", "tools/ncclmesh/procgroup", "transport/fault", "transport/topology", sysUnix, netlink, netlink + "/nl"},
	"tools/ncclmesh/bench":          {"handshake", "ibv", "printable", "tools/ncclmesh/fleet", "tools/ncclmesh/launch", "tools/ncclmesh/nccl", "tools/ncclmesh/rate", "tools/ncclmesh/topo", "transport", "transport/conn", "transport/fault", "transport/lane", "transport/path", "transport/topology", "transport/window", sysUnix},
	"tools/ncclmesh/fleet":          {"handshake", "printable", "tools/ncclmesh/procgroup"},
	"tools/ncclmesh/jobenv":         {"ncclnet/config", "tools/ncclmesh/library", "tools/ncclmesh/secret", "transport/topology"},
	"tools/ncclmesh/launch":         {"tools/ncclmesh/fleet", "tools/ncclmesh/jobenv", "tools/ncclmesh/library", "tools/ncclmesh/procgroup"},
	"tools/ncclmesh/library":        {"handshake", purego},
	"tools/ncclmesh/manual":         {cobra, pflag},
	"tools/ncclmesh/meet":           {"tools/ncclmesh/fleet", "transport/accept"},
	"tools/ncclmesh/nccl":           {purego},
	"tools/ncclmesh/netplan":        {"printable", "tools/ncclmesh/procgroup", "transport/topology", sysUnix, netlink, icmp, "golang.org/x/net/ipv4", "golang.org/x/net/ipv6", renameio, "go.yaml.in/yaml/v3"},
	"tools/ncclmesh/procgroup":      {sysUnix},
	"tools/ncclmesh/rate":           {},
	"tools/ncclmesh/report":         {"printable", "tools/ncclmesh/secret"},
	"tools/ncclmesh/secret":         {toml},
	"tools/ncclmesh/setup":          {"tools/ncclmesh/fleet", "tools/ncclmesh/library", "transport/topology"},
	"tools/ncclmesh/status":         {"printable", "transport", "transport/stats", "transport/window"},
	"tools/ncclmesh/topo":           {"handshake", "tools/ncclmesh/fleet", "transport", "transport/conn", "transport/discovery", "transport/fault", "transport/lane", "transport/path", "transport/routing", "transport/topology"},
	"tests/docs":                    {"docs/checks", "handshake", "ncclnet/config", "transport/discovery", "transport/lane"},
	"tests/docs/cmd/pages":          {"tests/docs"},
	"tests/docs/cmd/ship":           {"tests/docs"},
	"tests/datapath":                {},
	"tests/e2e":                     {},
	"tests/fabric":                  {"tests/internal/need", sysUnix},
	"tests/fabric/cmd/demo":         {"tests/fabric", "tests/internal/draw", "tests/nccl"},
	"tests/fakecuda":                {},
	"tests/fakeverbs":               {},
	"tests/gpu":                     {},
	"tests/lab":                     {"tests/internal/apt", "tests/internal/draw", sysUnix},
	"tests/lab/cmd/lab":             {"tests/lab"},
	"tests/internal/apt":            {},
	"tests/internal/draw":           {},
	"tests/internal/need":           {},
	"tests/internal/proved":         {},
	"tests/nccl":                    {"tests/fabric", "tests/internal/apt"},
	"tests/nccl/cmd/choices":        {"tests/fabric", "tests/nccl"},
	"tests/nccl/cmd/table":          {"tests/fabric", "tests/nccl"},
	"tests/netdriver":               {},
	"tests/onesided":                {},
	"tests/packages":                {},
	"tests/require":                 {"tests/internal/need"},
	"tests/sim/adapter":             {"ibv", "tests/sim/bus", sysUnix},
	"tests/sim/bus":                 {"tests/sim/draw", sysUnix},
	"tests/sim/mesh":                {"cuda", "ibv", "ncclnet", "tests/sim/adapter", "tests/sim/bus", "tests/sim/draw", "tests/sim/world", "transport/conn", "transport/fault", "transport/lane", "transport/onesided", "transport/stats"},
	"tests/sim/cmd/sim":             {"tests/sim/mesh"},
	"tests/sim/conformance":         {},
	"tests/sim/conformance/links":   {},
	"tests/sim/conformance/sockets": {},
	"tests/sim/draw":                {},
	"tests/sim/internet":            {"tests/sim/bus", "transport/limit", "transport/sock", sysUnix},
	"tests/sim/hosts":               {"random", "tests/sim/bus", "tests/sim/draw", "tests/sim/internet", "tests/sim/process", "transport/clock"},
	"tests/sim/process":             {"random", "tests/sim/bus", "tests/sim/draw", "transport/clock"},
	"tests/transporttest":           {"handshake", "ibv", "tests/fabric", "tests/require", "tests/sim/adapter", "tests/sim/bus", "tests/sim/internet", "tests/sim/world", "transport", "transport/clock", "transport/conn", "transport/lane", "transport/lane/circuit", "transport/lane/tcp", "transport/lane/verbs", "transport/path", "transport/relay", "transport/relay/engine", "transport/stats", "transport/threads", "transport/topology", "github.com/google/go-cmp/cmp"},
	"tests/rules":                   {},
	"tests/sim/mutants":             {},
	"tests/sim/world":               {"guard", "ibv", "tests/sim/adapter", "tests/sim/bus", "tests/sim/draw", "tests/sim/internet", "tests/sim/process", "transport", "transport/topology"},
}

const (
	purego   = "github.com/ebitengine/purego"
	sysUnix  = "golang.org/x/sys/unix"
	timeRate = "golang.org/x/time/rate"
	netlink  = "github.com/vishvananda/netlink"
	plot     = "gonum.org/v1/plot"
	cobra    = "github.com/spf13/cobra"
	pflag    = "github.com/spf13/pflag"
	term     = "golang.org/x/term"
	icmp     = "golang.org/x/net/icmp"
	renameio = "github.com/google/renameio/v2"
	toml     = "github.com/BurntSushi/toml"
)

// root is the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources returns every Go file of the repository, by the directory it is in.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	dirs := map[string][]string{}
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		base := filepath.Base(rel)
		if d.IsDir() && rel != "." && (strings.HasPrefix(base, ".") || base == "testdata" || rel == "build") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(base, ".go") {
			dir := filepath.ToSlash(filepath.Dir(rel))
			dirs[dir] = append(dirs[dir], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 5 {
		t.Fatalf("only %d directories with Go files below %s", len(dirs), top)
	}
	return dirs
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// eachOfPlugin calls visit with each file of the plugin that is no test, and the directory of its package.
func eachOfPlugin(t *testing.T, visit func(dir string, fset *token.FileSet, f *ast.File)) {
	t.Helper()
	for dir, files := range sources(t) {
		if top, _, _ := strings.Cut(dir, "/"); !slices.Contains([]string{"capi", "comm", "cuda", "guard", "handshake", "ibv", "internal", "logtext", "ncclnet", "printable", "transport", "tuner"}, top) {
			continue
		}
		for _, file := range files {
			if isTest(file) {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			visit(dir, fset, f)
		}
	}
}

func isTest(path string) bool { return strings.HasSuffix(path, "_test.go") }

func TestImportsPointOneWay(t *testing.T) {
	for dir, files := range sources(t) {
		allowed, known := imports[dir]
		if !known {
			t.Errorf("package %s is not in the table of imports: add it with what it may import", dir)
			continue
		}
		for _, path := range files {
			if isTest(path) {
				continue
			}
			for _, spec := range parse(t, path).Imports {
				name := strings.Trim(spec.Path.Value, `"`)
				name, inside := strings.CutPrefix(name, module+"/")
				foreign := strings.Contains(strings.SplitN(name, "/", 2)[0], ".") || name == "C"
				if (inside || foreign) && !slices.Contains(allowed, name) {
					t.Errorf("%s imports %s; %s may import %v", filepath.Base(path), name, dir, allowed)
				}
			}
		}
	}
}

// Packages that hold for all of NCCL's life are built without cgo too.
func TestNoCgoBelowCapi(t *testing.T) {
	for dir, files := range sources(t) {
		for _, path := range files {
			for _, spec := range parse(t, path).Imports {
				if spec.Path.Value == `"C"` && (!within(dir, []string{"capi"}) || isTest(path)) {
					t.Errorf("%s/%s imports C", dir, filepath.Base(path))
				}
			}
		}
	}
}

func TestUnsafeIsQuarantined(t *testing.T) {
	for dir, files := range sources(t) {
		for _, path := range files {
			base := filepath.Base(path)
			if isTest(path) || strings.HasSuffix(base, "_unsafe.go") || strings.HasPrefix(base, "z") {
				continue
			}
			for _, spec := range parse(t, path).Imports {
				if name := strings.Trim(spec.Path.Value, `"`); name == "unsafe" || name == purego {
					t.Errorf("%s/%s imports %s; that belongs in a file named *_unsafe.go", dir, base, name)
				}
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for dir, files := range sources(t) {
		var with []string
		only := true // test files only: a package of nothing
		for _, path := range files {
			if isTest(path) {
				continue
			}
			only = false
			if doc := parse(t, path).Doc; doc != nil && !strings.HasPrefix(doc.Text(), "Code generated") {
				with = append(with, filepath.Base(path))
			}
		}
		want := []string{"doc.go"}
		if strings.Contains(dir, "/cmd/") {
			want = []string{"main.go"} // a command of one file
		}
		if only {
			t.Errorf("%s has no doc.go", dir)
			continue
		}
		if diff := cmp.Diff(want, with); diff != "" {
			t.Errorf("%s: files with a package comment (-want +got):\n%s", dir, diff)
		}
	}
}

func TestFormatted(t *testing.T) {
	var all []string
	for _, files := range sources(t) {
		all = append(all, files...)
	}
	out, err := exec.Command("gofmt", append([]string{"-l"}, all...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("run gofmt -w on:\n%s%v", out, err)
	}
}

// The process is not ours: a goroutine of the library begins with guard.Run, or
// where it calls a function that does.
func TestGoroutinesAreGuarded(t *testing.T) {
	guarded := []string{"guard.", "guarded("}
	for dir, files := range sources(t) {
		if !strings.HasPrefix(dir, "transport") && dir != "ibv" && !within(dir, []string{"capi", "comm", "handshake", "ncclnet"}) {
			continue
		}
		for _, path := range files {
			if isTest(path) {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch s := n.(type) {
				case *ast.GoStmt:
				case *ast.CallExpr:
					if sel, ok := s.Fun.(*ast.SelectorExpr); !ok || sel.Sel.Name != "Go" {
						return true
					}
				default:
					return true
				}
				body := string(text[n.Pos()-1 : n.End()-1])
				if !slices.ContainsFunc(guarded, func(g string) bool { return strings.Contains(body, g) }) {
					t.Errorf("%s: a goroutine without guard.Run", fset.Position(n.Pos()))
				}
				return true
			})
		}
	}
}
