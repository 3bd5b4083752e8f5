package secret

import (
	"bytes"
	"regexp"
	"strings"
)

// options finds values of the options of command lines: --password x, curl -u user:x.
func options(text, _ []byte) []finding {
	var own []finding        // of options that mean a secret to their program alone
	seen := map[string]int{} // where the arguments end of the last place of each program
	list := scan(text, func(i int, open byte) (finding, bool) {
		before := at(text, i-1)
		if escaped := oneOf(before, "nrt") && at(text, i-2) == '\\'; !escaped && (isWord(before) || oneOf(before, "-.")) {
			return finding{}, false
		}
		j := i
		for at(text, j) == '-' {
			j++
		}
		start := j
		for j-start < maxName && (isWord(at(text, j)) || oneOf(at(text, j), ".-")) {
			j++
		}
		switch word := text[start:j]; {
		case start == i: // no dash
			if f := flags[string(word)]; f != nil && i >= seen[string(word)] {
				more, end := arguments(text, j, open, f)
				own, seen[string(word)] = append(own, more...), end
			}
		case len(word) > 1 && Name(string(word)):
			p := place{open: open}
			if c := at(text, i-1); oneOf(c, "\"'`") {
				p.opener = string(c)
			}
			return p.argument(text, name{text: string(word)}, j)
		}
		return finding{}, false
	})
	return append(list, own...)
}

var (
	// items is what is between two items of a list: the end of one string and the beginning of the next.
	items = regexp.MustCompile(`^\\*["'][ \t]*,\s*(\\*["'])`)
	// listed is what is between two items of a list in YAML.
	listed = regexp.MustCompile(`^["']?\r?\n[ \t]*-[ \t]+`)
)

// argument returns the value of the option n, which ends at i.
func (p place) argument(text []byte, n name, i int) (finding, bool) {
	next := text[i:min(i+maxName, len(text))]
	if m := items.FindSubmatch(next); m != nil {
		i += len(m[0])
		f := finding{i, closing(text, i, string(m[1])), Gone}
		return f, f.end > f.start && !ordinary(n.text, text[f.start:f.end], false)
	}
	start := afterBlanks(text, i)
	if start == i {
		m := listed.Find(next)
		if m == nil {
			return finding{}, false
		}
		p, start = place{}, i+len(m)
	}
	if bytes.HasPrefix(text[start:], []byte("--")) || oneOf(at(text, start), "=:|<>[(") {
		return finding{}, false
	}
	if said[string(text[start:p.bare(text, start)])] { // the option is in a sentence
		return finding{}, false
	}
	return p.value(text, n, start, false)
}

// A flag is an option whose name does not say that its value is a secret.
type flag struct {
	name     string
	attached bool   // the value may follow without a blank
	apart    bool   // the value may be the next argument
	holds    string // a character that is in every value that is a secret, as the colon of user:password; "" for none
	after    string // an argument that stands before it; "" for none
}

// flags are the flags of programs, by the programs' names.
var flags = programFlags()

func programFlags() map[string][]flag {
	all := map[string][]flag{}
	add := func(programs string, list ...flag) {
		for _, program := range strings.Fields(programs) {
			all[program] = append(all[program], list...)
		}
	}
	both := func(holds string, names ...string) (list []flag) {
		for _, n := range names {
			list = append(list, flag{name: n, attached: true, apart: true, holds: holds})
		}
		return list
	}
	add("curl wget http https xh", both(":", "-u", "--user", "-U", "--proxy-user", "-a", "-E", "--cert")...)
	add("curl", both("=", "-b")...)
	add("mysql mysqladmin mysqldump mysqlimport mariadb mariadb-admin mariadb-dump 7z 7za", flag{name: "-p", attached: true})
	add("sshpass mongo mongodump mongosh", both("", "-p")...)
	add("ipmitool", both("", "-P", "-k", "-y")...)
	add("bmc-info ipmi-sel ipmi-sensors ipmiconsole ipmipower", both("", "-p", "-k")...)
	add("redis-cli", flag{name: "-a", apart: true})
	add("ldapadd ldapmodify ldapsearch ldapwhoami", both("", "-w")...)
	add("rpcclient smbclient", both("%", "-U")...)
	add("az buildah docker helm nerdctl oras podman skopeo", flag{name: "-p", attached: true, apart: true, after: "login"})
	add("plink pscp psftp", flag{name: "-pw", apart: true})
	add("bcp sqlcmd unzip zip", both("", "-P")...)
	add("snmpbulkwalk snmpget snmpwalk", both("", "-A", "-X", "-c")...)
	add("openssl", flag{name: "-K", apart: true}, flag{name: "-k", apart: true})
	return all
}

// maxArguments is how many arguments of a program are looked at.
const maxArguments = 100

// arguments finds values of flags in the arguments that follow i, where a program's name ends. It returns where the arguments
// end, too.
func arguments(text []byte, i int, open byte, list []flag) (found []finding, end int) {
	for at(text, i) == '\\' && oneOf(at(text, i+1), "\"'\\") {
		i++
	}
	if oneOf(at(text, i), "\"'") { // the name is one of a list of strings
		i++
		open = 0
	}
	seen := map[string]bool{}
	var before flag // whose value is the next argument
	for range maxArguments {
		var f finding
		var ok bool
		if f, i, ok = nextArgument(text, i, open); !ok {
			break
		}
		arg := string(text[f.start:f.end])
		seen[arg] = true
		if before.apart && strings.Contains(arg, before.holds) {
			found = append(found, f)
		}
		before = flag{}
		for _, flag := range list {
			value, ok := strings.CutPrefix(arg, flag.name)
			switch {
			case !ok || flag.after != "" && !seen[flag.after]:
			case value == "":
				before = flag
			case flag.attached && strings.Contains(value, flag.holds) && (value[0] == '=' || !strings.HasPrefix(flag.name, "--")):
				found = append(found, finding{f.end - len(strings.TrimPrefix(value, "=")), f.end, Gone})
			}
		}
	}
	return found, i
}

// nextArgument returns the argument of a command line that follows i, without its quotes, and where it ends with them. It
// reports false where the command line ends.
func nextArgument(text []byte, i int, open byte) (f finding, end int, ok bool) {
	for oneOf(at(text, i), ", \t\\") {
		if i = afterBlanks(text, i); at(text, i) != ',' {
			break
		}
		i++
	}
	if i >= len(text) || oneOf(text[i], "\r\n|;&<>])}") {
		return finding{}, i, false
	}
	start, end, quote := quoted(text, i)
	if !bytes.HasPrefix(text[end:], []byte(quote)) || quote == "" || len(quote) == 1 && quote[0] == open {
		start, end, quote = i, place{open: open}.bare(text, i), ""
	}
	return finding{start, end, Gone}, end + len(quote), end > start
}

// afterBlanks returns where the blanks end that begin at i. The end of a line is one if a backslash is before it.
func afterBlanks(text []byte, i int) int {
	for {
		switch next := text[min(i, len(text)):]; {
		case oneOf(at(next, 0), " \t"):
			i++
		case bytes.HasPrefix(next, []byte("\\\n")):
			i += 2
		case bytes.HasPrefix(next, []byte("\\\r\n")):
			i += 3
		default:
			return i
		}
	}
}
