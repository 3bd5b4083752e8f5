package report

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// replace returns a text with names for its addresses, which it counts by kind.
func (n *namer) replace(text []byte, found Count) []byte {
	if n.host != nil { // before the addresses that may be in it
		text = n.host.ReplaceAllFunc(text, func([]byte) []byte {
			found[kindHost]++
			return []byte(kindHost)
		})
	}
	for _, find := range []func(text []byte) []spot{gidsOfNCCL, n.spots, n.glued} {
		var b []byte
		at := 0
		for _, s := range find(text) {
			b = append(append(b, text[at:s.start]...), n.name(s.address)...)
			at = s.end
			found[s.kind]++
		}
		if at > 0 {
			text = append(b, text[at:]...)
		}
	}
	return text
}

// A spot is a place in a text with an address.
type spot struct {
	start, end int
	address
}

var gidOfNCCL = regexp.MustCompile(`\bGID -?[0-9]+ \(([0-9A-Fa-f]{1,16})/([0-9A-Fa-f]{1,16})\)`)

// gidsOfNCCL finds GIDs as NCCL's own transport logs them: two numbers whose bytes in memory are those of the GID.
func gidsOfNCCL(text []byte) (list []spot) {
	for _, m := range gidOfNCCL.FindAllSubmatchIndex(text, -1) {
		prefix, err1 := strconv.ParseUint(string(text[m[2]:m[3]]), 16, 64)
		id, err2 := strconv.ParseUint(string(text[m[4]:m[5]]), 16, 64)
		b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, prefix), id)
		if a := netip.AddrFrom16([16]byte(b)); err1 == nil && err2 == nil && public(a) {
			list = append(list, spot{m[2], m[5], ip(a)})
		}
	}
	return list
}

// glued finds addresses of this node that the other finders miss, because a letter is next to them.
func (n *namer) glued(text []byte) (list []spot) {
	lower := lowered(text)
	for _, s := range n.left {
		for from := 0; ; {
			i := whole(lower, s.text, from)
			if i < 0 {
				break
			}
			from = i + len(s.text)
			list = append(list, spot{i, from, s.address})
		}
	}
	slices.SortFunc(list, func(a, b spot) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	end := 0
	return slices.DeleteFunc(list, func(s spot) bool { // one may be part of another
		if s.start < end {
			return true
		}
		end = s.end
		return false
	})
}

// spots finds addresses in all other spellings.
func (n *namer) spots(text []byte) (list []spot) {
	w := words{text, nil}
	for start := 0; start < len(text); {
		end := start
		for end < len(text) && alnum(text[end]) {
			end++
		}
		start = escape(text, start, end)
		if end > start {
			w.list = append(w.list, [2]int{start, end})
		}
		start = max(end, start+1)
	}
	finders := []func(w words, i int) (spot, int){n.octets, n.inet6, n.groups, n.inet4, n.digits}
	for i := 0; i < len(w.list); {
		count := 1
		if c := text[w.list[i][0]]; isHex(c) || oneOf(c, "ewi") { // which all spellings begin with
			for _, find := range finders {
				if s, words := find(w, i); words > 0 {
					list = append(list, s)
					count = words
					break
				}
			}
		}
		i += count
	}
	return list
}

func oneOf(c byte, some string) bool { return strings.IndexByte(some, c) >= 0 }

func alnum(c byte) bool { return isHex(c) || c >= 'g' && c <= 'z' || c >= 'G' && c <= 'Z' }

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

var coloured = regexp.MustCompile(`^[0-9]{1,3}m`)

// escape returns where a word begins that runs from start to end, after the letters of an escape sequence: of \n and \u003c, as
// strings have them, and of the colours of a terminal.
func escape(text []byte, start, end int) int {
	switch {
	case start == 0 || start == end:
	case text[start-1] == '\\' && oneOf(text[start], "nrt"):
		return start + 1
	case text[start-1] == '\\' && text[start] == 'x' && end-start > 2:
		return start + 3
	case text[start-1] == '\\' && text[start] == 'u' && end-start > 4:
		return start + 5
	case oneOf(text[start-1], "[;") && coloured.Match(text[start:end]):
		return start + bytes.IndexByte(text[start:end], 'm') + 1
	}
	return start
}

// words are the runs of letters and digits in a text.
type words struct {
	text []byte
	list [][2]int // where they begin and end
}

// at returns a word, "" for one that is not there.
func (w words) at(i int) string {
	if i < 0 || i >= len(w.list) {
		return ""
	}
	return string(w.text[w.list[i][0]:w.list[i][1]])
}

// between returns what is before a word, and after the one before it.
func (w words) between(i int) string {
	if i <= 0 || i >= len(w.list) {
		return ""
	}
	return string(w.text[w.list[i-1][1]:min(w.list[i][0], w.list[i-1][1]+3)])
}

// chain returns how many words from i on are of some form, and separated by one of some separators, at most limit.
func (w words) chain(i, limit int, of func(word string) bool, separators ...string) int {
	n := 0
	for n < limit && i+n < len(w.list) && (n == 0 || slices.Contains(separators, w.between(i+n))) && of(w.at(i+n)) {
		n++
	}
	return n
}

// spot returns the place of count words from i on.
func (w words) spot(i, count int, a address) (spot, int) {
	return spot{w.list[i][0], w.list[i+count-1][1], a}, count
}

// digits returns the hexadecimal digits of count words from i on.
func (w words) digits(i, count int) string {
	var b strings.Builder
	for k := range count {
		b.WriteString(strings.ToLower(w.at(i + k)))
	}
	return b.String()
}

// hexadecimal returns a function that reports whether a word is n hexadecimal digits.
func hexadecimal(n int) func(word string) bool {
	return func(word string) bool {
		return len(word) == n && strings.IndexFunc(word, func(r rune) bool { return !isHex(byte(r)) }) < 0
	}
}

// decimal reports whether a word is a number of up to three digits.
func decimal(word string) bool {
	return len(word) <= 3 && word != "" && strings.Trim(word, "0123456789") == ""
}

// mixed reports whether hexadecimal digits have both letters and numbers among them, and so are neither a count nor a word.
func mixed(digits string) bool {
	return strings.ContainsAny(digits, "abcdefABCDEF") && strings.ContainsAny(digits, "0123456789")
}

// octets finds MAC addresses and EUI-64s in pairs of digits, with colons or dashes, also escaped as nmcli does it.
func (n *namer) octets(w words, i int) (spot, int) {
	const longest = 32
	count := w.chain(i, longest, hexadecimal(2), ":", "-", `\:`)
	for k := 0; k+6 <= count; k++ { // one of ours in something longer
		if a := (address{kindMAC, w.digits(i+k, 6)}); n.own[a] && (k > 0 || count > 6) {
			if k > 0 {
				return spot{}, 0
			}
			return w.spot(i, 6, a)
		}
	}
	if count < 6 || w.between(i) == "-" && len(w.at(i-1)) == 4 { // the rest of a date
		return spot{}, 0
	}
	a := address{kindMAC, w.digits(i, count)}
	if count == 8 {
		a.kind = kindGUID
	}
	if raw, err := hex.DecodeString(a.text); err != nil || trivial(raw) {
		return spot{}, 0
	}
	return w.spot(i, count, a)
}

// inet6 finds IPv6 addresses, and in host names those that have dashes for the colons.
func (n *namer) inet6(w words, i int) (spot, int) {
	for _, sep := range []string{":", "-"} {
		double := sep + sep
		last := i // of the words that may be of one address
		for last+1 < len(w.list) && last < i+11 {
			if b := w.between(last + 1); b != sep && b != double && !(sep == ":" && b == ".") {
				break
			}
			last++
		}
		start := w.list[i][0]
		starts := []int{start}
		if bytes.HasSuffix(w.text[:start], []byte(double)) {
			starts = []int{start - 2, start}
		}
		for _, start := range starts {
			for k := last; k >= i; k-- {
				end := w.list[k][1]
				if bytes.HasPrefix(w.text[end:], []byte(double)) && (end+2 == len(w.text) || !alnum(w.text[end+2])) {
					end += 2
				}
				if a, ok := n.is6(string(w.text[start:end]), sep); ok {
					return spot{start, end, ip(a)}, k - i + 1
				}
			}
		}
	}
	return spot{}, 0
}

// beginnings are those of addresses that nodes have. What else can be read as an IPv6 address is a time, or code: ab::cd.
var beginnings = []netip.Prefix{netip.MustParsePrefix("2000::/3"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::ffff:0:0/96")}

// compatible are addresses that nodes no longer have.
var compatible = netip.MustParsePrefix("::/96")

// is6 returns the IPv6 address that a text is, with a separator for the colons.
func (n *namer) is6(text, sep string) (netip.Addr, bool) {
	short, groups := strings.Contains(text, sep+sep), strings.Count(text, sep)+1
	if !short && groups != 8 && !(groups == 7 && strings.Contains(text, ".")) {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(text, sep, ":"))
	switch {
	case err != nil || !a.Is6() || !public(a):
		return netip.Addr{}, false
	case n.own[ip(a)]:
		return a, true
	case !short:
		return a, !compatible.Contains(a) // eight numbers, of which one is a port
	case sep == "-" && !mixed(text): // a date and a time
		return netip.Addr{}, false
	}
	return a, slices.ContainsFunc(beginnings, func(p netip.Prefix) bool { return p.Contains(a) })
}

// groups finds MAC addresses as aabb.ccdd.eeff and aabbcc-ddeeff, and GUIDs as 0011:2233:4455:6677.
func (n *namer) groups(w words, i int) (spot, int) {
	if w.chain(i, 5, hexadecimal(4), ":") == 4 && strings.Trim(w.digits(i, 4), "0") != "" {
		return w.spot(i, 4, address{kindGUID, w.digits(i, 4)})
	}
	for _, form := range []struct {
		words, digits int
		sep           string
		ours          bool // only this node's addresses: others may be parts of a UUID
	}{{3, 4, ".", false}, {3, 4, "-", true}, {2, 6, "-", false}} {
		if w.chain(i, form.words+1, hexadecimal(form.digits), form.sep) != form.words {
			continue
		}
		if a := (address{kindMAC, w.digits(i, form.words)}); n.own[a] || mixed(a.text) && !form.ours {
			return w.spot(i, form.words, a)
		}
	}
	return spot{}, 0
}

var (
	// hashed matches what NCCL writes before numbers that are no addresses.
	hashed = regexp.MustCompile(`(?:comm|commId|[Hh]ash) 0x$`)
	// versioned matches what stands before a version: pip's ==, the end of a library's name, and the release of a package.
	versioned = regexp.MustCompile(`(?:==|\.so\.|(?i:version)[ :=]+|(?:^|[^0-9.])[0-9]+\.[0-9]+-)$`)
)

// before returns the characters before a word.
func (w words) before(i int) []byte { return w.text[max(w.list[i][0]-12, 0):w.list[i][0]] }

// digits finds MAC addresses, GUIDs and GIDs that are digits alone, and MAC addresses in names of interfaces: enx025abeef0001.
func (n *namer) digits(w words, i int) (spot, int) {
	start, end := w.list[i][0], w.list[i][1]
	word := strings.ToLower(w.at(i))
	prefix := ""
	for _, p := range []string{"0x", "enx", "ibx", "wlx", "wwx"} {
		if strings.HasPrefix(word, p) && (p != "0x" || len(word) > 14) {
			prefix, word = p, word[len(p):]
		}
	}
	begin := start
	if prefix != "0x" { // it goes, and the rest of an interface's name stays
		begin += len(prefix)
	}
	a := address{kindMAC, word}
	switch {
	case len(word) != 12 && len(word) != 16 && len(word) != 32 || !hexadecimal(len(word))(word):
		return spot{}, 0
	case len(word) == 16:
		a.kind = kindGUID
	case len(word) == 32:
		raw, err := hex.DecodeString(word)
		if err != nil {
			return spot{}, 0
		}
		gid := netip.AddrFrom16([16]byte(raw))
		// Most that are so long are UUIDs and hashes.
		if a = ip(gid); !public(gid) || !n.own[a] && !strings.HasPrefix(word, "fe80000000000000") && !gid.Is4In6() {
			return spot{}, 0
		}
		return spot{begin, end, a}, 1
	}
	before := append(w.before(i), prefix...)
	inUUID := w.between(i) == "-" && hexadecimal(4)(w.at(i-1)) && w.between(i-1) == "-" && hexadecimal(4)(w.at(i-2))
	if n.own[a] || !hashed.Match(before) && !inUUID && (mixed(word) || prefix != "") && !pointer(word) {
		return spot{begin, end, a}, 1
	}
	return spot{}, 0
}

// pointer reports whether sixteen digits are an address of memory, or a small number.
func pointer(digits string) bool {
	return len(digits) == 16 && (strings.HasPrefix(digits, "0000") || strings.HasPrefix(digits, "ffff"))
}

// inet4 finds IPv4 addresses, and those in host names: ip-10-0-0-1.
func (n *namer) inet4(w words, i int) (spot, int) {
	for _, sep := range []string{".", "-", "_"} {
		const longest = 16
		count := w.chain(i, longest, decimal, sep)
		if count < 4 {
			continue
		}
		for k := 0; k+4 <= count; k++ { // one of ours in something longer
			if a, ok := w.is4(i+k, false); ok && n.own[ip(a)] {
				if k > 0 {
					return spot{}, 0
				}
				return w.spot(i, 4, ip(a))
			}
		}
		end := w.list[i+3][1]
		reversed := sep == "." && bytes.HasPrefix(w.text[end:], []byte(".in-addr.arpa"))
		a, ok := w.is4(i, reversed)
		if !ok || sep == "." && versioned.Match(w.before(i)) || sep != "." && (count > 4 || !inHost(w, i, a, sep)) {
			return spot{}, 0
		}
		return w.spot(i, 4, ip(a))
	}
	return spot{}, 0
}

// is4 returns the IPv4 address that four words are, or are in reverse.
func (w words) is4(i int, reversed bool) (netip.Addr, bool) {
	var b [4]byte
	for k := range b {
		v, err := strconv.ParseUint(w.at(i+k), 10, 8)
		if err != nil {
			return netip.Addr{}, false
		}
		b[k] = byte(v)
	}
	if reversed {
		slices.Reverse(b[:])
	}
	a := netip.AddrFrom4(b)
	return a, public(a)
}

// inHost reports whether four numbers with a separator between them are an address in the name of a host: a private one, or
// one with a word before it, or with a domain after it. They are not, after another number.
func inHost(w words, i int, a netip.Addr, sep string) bool {
	name := func(word string) bool { return strings.Trim(word, "0123456789") != "" }
	before, after := w.between(i), w.between(i+4)
	if before == sep && !name(w.at(i-1)) {
		return false
	}
	return a.IsPrivate() || a.IsLinkLocalUnicast() || before == "-" || before == "_" || after == "." && name(w.at(i+4))
}
