package report

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ncclmesh/tools/ncclmesh/secret"
)

// minSecret is the length from which a secret's value is looked for everywhere: shorter ones are parts of ordinary words.
// A number has to be longer, because reports are full of counters.
const (
	minSecret = 5
	minNumber = 8
)

// Count says how often what was taken out of a text, by kinds: the rules of package secret, "known secret", and kinds of
// addresses.
type Count map[string]int

// String is a count in a few words: 2 secrets, 3 addresses. It is empty where nothing was taken out.
func (c Count) String() string {
	secrets, addresses := 0, 0
	for kind, n := range c {
		switch kind {
		case kindMAC, kindGUID, kindIP, kindHost:
			addresses += n
		default:
			secrets += n
		}
	}
	var list []string
	for _, part := range []struct {
		n         int
		one, many string
	}{{secrets, "secret", "secrets"}, {addresses, "address", "addresses"}} {
		switch part.n {
		case 0:
		case 1:
			list = append(list, "1 "+part.one)
		default:
			list = append(list, fmt.Sprintf("%d %s", part.n, part.many))
		}
	}
	return strings.Join(list, ", ")
}

// known is the kind of secrets that are in this node's environment.
const known = "known secret"

// A Redactor takes secrets out of texts, and addresses too if it is asked to. The same address becomes the same name
// everywhere, so that a reader sees what belongs together. It is for one goroutine.
type Redactor struct {
	Addresses bool // whether addresses are taken out

	secrets []string // in all spellings, the longest first
	namer
}

// New returns a redactor that knows the values of secrets, and this node's addresses.
func New(secrets []string, addresses bool, node Node) *Redactor {
	r := &Redactor{Addresses: addresses, namer: newNamer(node)}
	for _, s := range secrets {
		for part := range strings.Lines(s) { // a key of several lines may be indented elsewhere
			if part = strings.TrimSpace(part); wanted(part) {
				r.secrets = append(r.secrets, spellings(part)...)
			}
		}
	}
	slices.SortFunc(r.secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // one may be part of another
	r.secrets = slices.Compact(r.secrets)
	return r
}

// wanted reports whether a secret is long enough to be looked for everywhere.
func wanted(s string) bool {
	if strings.Trim(s, "0123456789.") == "" {
		return len(s) >= minNumber
	}
	return len(s) >= minSecret && !slices.Contains([]string{"false", "empty", "never", "always", "basic", "unset"}, strings.ToLower(s))
}

// spellings returns a secret as it stands in text, JSON, Go's quotes, URLs and base64.
func spellings(s string) []string {
	list := []string{s, url.QueryEscape(s), url.PathEscape(s)}
	if len(s) >= 8 {
		list = append(list, base64.RawStdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)))
	}
	quoted := strconv.Quote(s)
	list = append(list, quoted[1:len(quoted)-1])
	for _, html := range []bool{false, true} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if err := e.Encode(s); err == nil {
			list = append(list, b.String()[1:b.Len()-len("\"\n")])
		}
	}
	return list
}

// colours matches what colours text on a terminal. It may stand between a name and its value.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Text returns a text without what must not be in it, and how often it was.
func (r *Redactor) Text(text []byte) ([]byte, Count) {
	found := Count{}
	text = colours.ReplaceAll(text, nil)
	for _, s := range r.secrets {
		if n := bytes.Count(text, []byte(s)); n > 0 {
			text = bytes.ReplaceAll(text, []byte(s), []byte(secret.Gone))
			found[known] += n
		}
	}
	text = secret.Redact(text, func(rule string, _ []byte) { found[rule]++ })
	if r.Addresses {
		text = r.replace(text, found)
	}
	return text, found
}

// String is Text for a string, which is counted nowhere.
func (r *Redactor) String(s string) string {
	text, _ := r.Text([]byte(s))
	return string(text)
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
	return r.leaks(text)
}
