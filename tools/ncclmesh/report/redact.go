package report

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// gone stands for a secret.
const gone = "(redacted)"

// minSecret is the length from which a secret's value is looked for everywhere: shorter ones are parts of ordinary words.
const minSecret = 5

// A Redactor takes secrets out of texts, and addresses too if it is asked to. The same address becomes the same name
// everywhere, so that a reader sees what belongs together. It is for one goroutine.
type Redactor struct {
	Addresses bool
	Host      string // name of this node, which is taken out with addresses

	secrets []string
	names   map[string]string // of addresses
	count   map[string]int    // of names of a kind
	own     [][]byte          // this node's addresses, in all spellings, which must not be left
}

// New returns a redactor that knows the values of secrets, and the addresses of this node.
func New(secrets []string, addresses bool, host string, macs []net.HardwareAddr, addrs []netip.Addr) *Redactor {
	r := &Redactor{Addresses: addresses, Host: host, names: map[string]string{}, count: map[string]int{}}
	for _, s := range secrets {
		for part := range strings.Lines(s) { // a key of several lines may be indented elsewhere
			if part = strings.TrimSpace(part); len(part) >= minSecret {
				r.secrets = append(r.secrets, part)
			}
		}
	}
	slices.SortFunc(r.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may be part of another
	for _, m := range macs {
		if len(m) < 6 || bytes.Equal(m, make([]byte, len(m))) {
			continue
		}
		colons := m.String()
		r.own = append(r.own, []byte(colons), []byte(strings.ReplaceAll(colons, ":", "-")))
	}
	for _, a := range addrs {
		if a = a.WithZone(""); public(a) {
			r.own = append(r.own, []byte(a.String()))
		}
	}
	return r
}

// public reports whether an address tells anything of a node.
func public(a netip.Addr) bool { return !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() }

var (
	pem      = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`)
	userinfo = regexp.MustCompile(`(://[^/\s:@]*):[^/\s@]+@`)
	bearer   = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{5,}`)
	shaped   = regexp.MustCompile(`\b(hf_[A-Za-z0-9]{10,}|sk-[A-Za-z0-9_-]{10,}|gh[pousr]_[A-Za-z0-9]{10,}|xox[abprs]-[A-Za-z0-9-]{10,}|AKIA[A-Z0-9]{16}|nvapi-[A-Za-z0-9_-]{10,}|glpat-[A-Za-z0-9_-]{10,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)`)
	assigned = regexp.MustCompile(`(?i)([A-Z0-9_.-]*(?:key|token|secret|passw|credential|auth|cookie)[A-Z0-9_.-]*\\?["']?[ \t]*[=:][ \t]*)(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\]"']+)`)

	mac   = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,19}\b`)
	guid  = regexp.MustCompile(`\b(?:[0-9A-Fa-f]{4}(?::[0-9A-Fa-f]{4}){3}|0x[0-9A-Fa-f]{16})\b`)
	inet6 = regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f]*(?:\.[0-9]{1,3}){0,3}`)
	inet4 = regexp.MustCompile(`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b`)
)

// Text returns a text without what must not be in it.
func (r *Redactor) Text(text []byte) []byte {
	for _, s := range r.secrets {
		text = bytes.ReplaceAll(text, []byte(s), []byte(gone))
	}
	text = pem.ReplaceAll(text, []byte(gone))
	text = userinfo.ReplaceAll(text, []byte("$1:"+gone+"@"))
	text = bearer.ReplaceAll(text, []byte("$1 "+gone))
	text = shaped.ReplaceAll(text, []byte(gone))
	text = assigned.ReplaceAllFunc(text, func(match []byte) []byte {
		m := assigned.FindSubmatch(match)
		name, value := m[1], string(m[2])
		quote := ""
		switch { // what was JSON stays JSON
		case strings.HasPrefix(value, `\"`):
			quote = `\"`
		case strings.HasPrefix(value, `"`), bytes.HasSuffix(bytes.TrimRight(name, " \t:"), []byte(`"`)):
			quote = `"`
		case strings.HasPrefix(value, "'"):
			quote = "'"
		}
		return slices.Concat(name, []byte(quote+gone+quote))
	})
	if !r.Addresses {
		return text
	}
	text = mac.ReplaceAllFunc(text, func(m []byte) []byte {
		return r.name("mac", strings.ReplaceAll(strings.ToLower(string(m)), "-", ":"))
	})
	text = inet6.ReplaceAllFunc(text, r.address)
	text = guid.ReplaceAllFunc(text, func(m []byte) []byte {
		return r.name("guid", strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(string(m)), "0x"), ":", ""))
	})
	text = inet4.ReplaceAllFunc(text, r.address)
	if r.Host != "" {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(r.Host)+`\b`).ReplaceAll(text, []byte("this-node"))
	}
	return text
}

// address names what is an address, and leaves what only looks like one.
func (r *Redactor) address(match []byte) []byte {
	a, err := netip.ParseAddr(string(match))
	if err != nil || !public(a) {
		return match
	}
	return r.name("ip", a.Unmap().String())
}

func (r *Redactor) name(kind, value string) []byte {
	key := kind + " " + value
	if r.names[key] == "" {
		r.count[kind]++
		r.names[key] = fmt.Sprintf("%s-%d", kind, r.count[kind])
	}
	return []byte(r.names[key])
}

// Leaks says what of that which must not be there is in a text; nil if nothing is. It does not say the thing itself.
func (r *Redactor) Leaks(text []byte) error {
	for i, s := range r.secrets {
		if bytes.Contains(text, []byte(s)) {
			return fmt.Errorf("holds secret %d of %d", i+1, len(r.secrets))
		}
	}
	if !r.Addresses {
		return nil
	}
	lower := bytes.ToLower(text)
	for i, a := range r.own {
		if word(lower, a) {
			return fmt.Errorf("holds address %d of %d of this node", i+1, len(r.own))
		}
	}
	return nil
}

// word reports whether an address is in a text, and not only as a part of another.
func word(text, address []byte) bool {
	part := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c == '.' || c == ':' }
	for from := 0; ; {
		i := bytes.Index(text[from:], address)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(address)
		if (i == 0 || !part(text[i-1])) && (end == len(text) || !part(text[end]) || text[end] == '.' && (end+1 == len(text) || !part(text[end+1]))) {
			return true
		}
		from = i + 1
	}
}
