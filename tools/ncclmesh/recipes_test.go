package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/library"
)

const recipes = "../../docs/recipes"

var (
	fence   = regexp.MustCompile("(?s)```(\\w*)[^\n]*\n(.*?)```")
	setting = regexp.MustCompile(`\b(NCCL_[A-Z_]+)(?:=|: )["']?([^\s"',]+)`)
)

// Recipes set what ncclmesh env says, are what they are written in, and are all named on the page that says what has been run.
func TestRecipes(t *testing.T) {
	exports, err := jobenv.Exports([]library.Library{{Path: "/usr/lib/" + library.Name, ByName: true}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(recipes, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"*", "image/*"} {
		more, err := filepath.Glob(filepath.Join(recipes, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, path := range files {
		name, _ := filepath.Rel(recipes, path)
		if info, err := os.Stat(path); err != nil || info.IsDir() || name == "README.md" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if name != "compose.yaml" && !strings.Contains(string(list), "("+name+")") { // docker.md leads to that
				t.Errorf("README.md does not say what of %s has been run", name)
			}
			if !regexp.MustCompile(`Run so far: `).Match(text) && name != "compose.yaml" && name != "image/Dockerfile" {
				t.Error("it does not say what of it has been run")
			}
			checkSettings(t, exports, string(text))
			if strings.HasSuffix(name, ".yaml") {
				var document map[string]any
				if err := yaml.Unmarshal(text, &document); err != nil || len(document) == 0 {
					t.Errorf("%v: %v", document, err)
				}
			}
			for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
				if m[1] != "sh" {
					continue
				}
				sh := exec.Command("sh", "-n")
				sh.Stdin = strings.NewReader(m[2])
				if out, err := sh.CombinedOutput(); err != nil {
					t.Errorf("a shell does not read this: %v\n%s\n%s", err, out, m[2])
				}
			}
		})
	}
}

// checkSettings holds what a recipe sets against what ncclmesh env sets, and against what it objects to.
func checkSettings(t *testing.T, exports jobenv.Variables, text string) {
	t.Helper()
	var set jobenv.Variables
	for _, m := range setting.FindAllStringSubmatch(text, -1) {
		set = append(set, jobenv.Variable{Name: m[1], Value: strings.Trim(m[2], "`.")})
	}
	names := map[string]string{}
	for _, v := range set {
		names[v.Name] = v.Value
	}
	for _, v := range exports {
		if v.Name != "NCCL_NET_PLUGIN" && names["NCCL_NET_PLUGIN"] != "" && len(names) > 1 && names[v.Name] != v.Value {
			t.Errorf("%s is %q, and not %q", v.Name, names[v.Name], v.Value)
		}
	}
	node := jobenv.Node{
		Exists:   func(string) bool { return true },
		Identify: func(path string) error { return nil },
	}
	for _, o := range jobenv.Against(set, node) {
		t.Errorf("%v", o)
	}
}

// The file for all jobs of a node is read as it stands.
func TestRecipeOfNCCLsFile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(recipes, "nccl-conf.md"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/nccl.conf"), []byte(fence.FindStringSubmatch(string(text))[2]), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := jobenv.Read(nil, root)
	if err != nil {
		t.Fatal(err)
	}
	want, err := jobenv.Exports([]library.Library{{ByName: true}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Origin = ""
	}
	slices.SortFunc(want, func(a, b jobenv.Variable) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
