package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ncclmesh/docs/checks"
	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/lane"
)

// WordsFile lists, relative to Root, words that text for users must not have: on each line a regular expression for a
// whole word, what to write instead, and exceptions, with tabs between them.
const WordsFile = "tests/rules/testdata/words.txt"

// Facts is what the code knows and pages repeat.
type Facts struct {
	blocks    map[string]string // by the name in the comments around a block: the block's lines
	sentences []sentence
}

// A sentence has a number or version in its first group.
type sentence struct {
	pattern *regexp.Regexp
	value   string
}

// settings are the variables of the README's table.
var settings = []string{
	"NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_MESH_TRANSPORT", "NCCL_MESH_KEY",
	"NCCL_MESH_LANE_WAIT", "NCCL_MESH_TUNER", "NCCL_MESH_TOPOLOGY", "NCCL_MESH_DEBUG",
}

// ReadFacts gathers the facts. It builds the command ncclmesh, to learn its subcommands.
func ReadFacts() (*Facts, error) {
	goVersion, err := captured("go.mod", `(?m)^go (\d+\.\d+)`)
	if err != nil {
		return nil, err
	}
	net, err := captured("capi/vtable.c", `ncclNetPlugin_v(\d+)`)
	if err != nil {
		return nil, err
	}
	tuner, err := captured("capi/tuner.c", `ncclTunerPlugin_v(\d+)`)
	if err != nil {
		return nil, err
	}
	rma, err := captured("capi/rma.c", `ncclRmaPlugin_v(\d+)`)
	if err != nil {
		return nil, err
	}
	commands, err := commandTable()
	if err != nil {
		return nil, err
	}
	words, err := wordTable()
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	if err := config.WriteTable(&all); err != nil {
		return nil, err
	}
	f := &Facts{blocks: map[string]string{
		"config": all.String(), "settings": settingsTable(), "commands": commands, "limits": limitTable(), "words": words,
		"same": sameTable(),
	}}
	number := func(pattern string, value any) {
		f.sentences = append(f.sentences, sentence{regexp.MustCompile(pattern), fmt.Sprint(value)})
	}
	number(`(\d+)\s+known\s+faults`, len(checks.IDs()))
	number(`(\d+) checks in \d`, len(checks.IDs()))
	number(`protocol (\d+)\b`, handshake.Version)
	number(`(?m)^Version (\d+)\. Both ends`, handshake.Version)
	number(`with\s+Go\s+(\d+\.\d+)`, slices.MaxFunc(goVersion, strings.Compare))
	number("ncclNetPlugin_v(\\d+)` to", least(net))
	number("ncclNetPlugin_v\\d+` to `_v(\\d+)`", most(net))
	number("ncclRmaPlugin_v(\\d+)` to", least(rma))
	number("ncclRmaPlugin_v\\d+` to `_v(\\d+)", most(rma))
	number("ncclTunerPlugin_v(\\d+)` to", least(tuner))
	number("ncclTunerPlugin_v\\d+` to `_v(\\d+)`", most(tuner))
	number(`vtables v(\d+) to`, least(net))
	number(`vtables v\d+ to v(\d+)`, most(net))
	number(`UDP\s+port\s+(20\d{3})`, discovery.UDPPort)
	number(`waits\s+(\d+)\s+s\s+for\s+one`, defaultOf("NCCL_MESH_LANE_WAIT"))
	number(`of\s+up\s+to\s+(\d+)\s+nodes`, handshake.MaxMapNodes)
	return f, nil
}

// sameTable lists the settings that two processes compare, by what a difference means.
func sameTable() string {
	var own, nccls, settled []string
	for _, s := range config.Told(func(string) string { return "" }) {
		name := "`" + s.Name + "`"
		switch {
		case s.Rule != handshake.RuleSame && s.Name == "NCCL_MESH_KEY": // of the key only whether there is one
			settled = append(settled, "whether "+name+" is set")
		case s.Rule != handshake.RuleSame:
			settled = append(settled, name)
		case strings.HasPrefix(s.Name, "NCCL_MESH_"), s.Name == "NCCL_TUNER_PLUGIN":
			own = append(own, name)
		default:
			nccls = append(nccls, name)
		}
	}
	const row = "| %s | %s |\n"
	return "| Variables | A difference |\n|---|---|\n" +
		fmt.Sprintf(row, strings.Join(own, ", "), "is an error") +
		fmt.Sprintf(row, strings.Join(nccls, ", "), "is an error") +
		fmt.Sprintf(row, strings.Join(settled, ", "), "is a warning; each node uses its own value")
}

// captured returns what the first group of pattern matches in a file of the repository; an error if it matches nothing.
func captured(file, pattern string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(Root(), file))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	if found == nil {
		return nil, fmt.Errorf("%s: nothing matches %q", file, pattern)
	}
	return found, nil
}

func byNumber(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

func least(versions []string) string { return slices.MinFunc(versions, byNumber) }
func most(versions []string) string  { return slices.MaxFunc(versions, byNumber) }

// settingsTable returns the README's table of settings.
func settingsTable() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, s := range config.Settings(func(string) string { return "" }) {
		if slices.Contains(settings, s.Name) {
			meaning := strings.ReplaceAll(s.Meaning, "](", "](docs/")
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, strings.TrimSpace(s.Default+" "+s.Unit), meaning)
		}
	}
	return b.String()
}

// defaultOf returns the default of a variable.
func defaultOf(name string) string {
	for _, s := range config.Settings(func(string) string { return "" }) {
		if s.Name == name {
			return s.Default
		}
	}
	panic("no variable " + name)
}

// commandTable returns the subcommands of ncclmesh with their one-line descriptions, as its own help lists them.
func commandTable() (string, error) {
	cmd := exec.Command("go", "run", "./ncclmesh", "--help")
	cmd.Dir = filepath.Join(Root(), "tools")
	help, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v in tools: %w", cmd, err)
	}
	_, list, _ := strings.Cut(string(help), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	list = regexp.MustCompile(`\n   +`).ReplaceAllString(list, " ") // the rest of a description
	var b strings.Builder
	b.WriteString("| command | what it does |\n|---|---|\n")
	for line := range strings.Lines(list) {
		name, short, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "help" && name != "completion" {
			fmt.Fprintf(&b, "| `ncclmesh %s` | %s |\n", name, strings.TrimSpace(short))
		}
	}
	return b.String(), nil
}

// limitTable returns the limits of the protocol.
func limitTable() string {
	var b strings.Builder
	b.WriteString("| limit | value |\n|---|---|\n")
	for _, l := range []struct {
		what  string
		value int
	}{
		{"lanes of a connection, parts of a message", handshake.MaxLanes},
		{"domains of a connection on either side", handshake.MaxDomains},
		{"receives in flight", lane.Window},
		{"messages of a receive", lane.MaxSubs},
		{"parts in flight that were sent again", lane.Resends},
		{"eager messages in flight", lane.EagerWindow},
		{"bytes of an eager message", lane.EagerSize},
		{"ports of a node", handshake.MaxPorts},
		{"addresses of a port", handshake.MaxPortAddrs},
		{"addresses in a Hello", handshake.MaxAddrs},
		{"nodes of a map", handshake.MaxMapNodes},
		{"cables of a node in a map", handshake.MaxMapLinks},
		{"relays of a route", handshake.MaxHops},
		{"bytes of a name", handshake.MaxName},
		{"settings of a process", handshake.MaxSettings},
		{"bytes of a value, or of the reason of one lane", handshake.MaxReason},
		{"bytes of the names of relaying nodes", handshake.MaxThrough},
		{"bytes of another explanation", handshake.MaxText},
		{"bytes of a message's body", handshake.MaxBody},
	} {
		fmt.Fprintf(&b, "| %s | %d |\n", l.what, l.value)
	}
	return b.String()
}

// wordTable returns the words that text for users must not have, and what to write instead.
func wordTable() (string, error) {
	text, err := os.ReadFile(filepath.Join(Root(), WordsFile))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| not this | but |\n|---|---|\n")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) < 2 {
			return "", fmt.Errorf("%s: line %q has no tab", WordsFile, line)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.NewReplacer("s?", "", "|", ", ").Replace(f[0]), f[1])
	}
	return b.String(), nil
}

var block = regexp.MustCompile(`(?s)<!-- (\w+):begin -->\n(.*?)<!-- (\w+):end -->\n`)

// Generate returns the text of a page with its generated blocks and numbers as they are to be. It returns an error for a
// block that nothing generates. Blocks named in foreign belong to others, and CHANGELOG.md keeps the numbers of its time.
func Generate(f *Facts, page, text string) (string, error) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		lines, known := f.blocks[m[1]]
		switch {
		case m[1] != m[3]:
			return "", fmt.Errorf("%s: block %s ends as %s", page, m[1], m[3])
		case slices.Contains(foreign, m[1]):
			continue
		case !known:
			return "", fmt.Errorf("%s: nothing generates block %s", page, m[1])
		}
		text = strings.Replace(text, m[0], "<!-- "+m[1]+":begin -->\n"+lines+"<!-- "+m[1]+":end -->\n", 1)
	}
	if page == "CHANGELOG.md" {
		return text, nil
	}
	for _, s := range f.sentences {
		text = replaceGroup(s.pattern, text, s.value)
	}
	return text, nil
}

// foreign are blocks that are written by hand and read by tests.
var foreign = []string{"unread"}

// replaceGroup replaces what the first group of a pattern matches, everywhere.
func replaceGroup(p *regexp.Regexp, text, value string) string {
	var b strings.Builder
	at := 0
	for _, m := range p.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(text[at:m[2]])
		b.WriteString(value)
		at = m[3]
	}
	b.WriteString(text[at:])
	return b.String()
}
