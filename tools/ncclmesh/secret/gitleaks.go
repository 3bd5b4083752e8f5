package secret

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"

	"github.com/BurntSushi/toml"
)

//go:embed gitleaks.toml
var gitleaks []byte

// issued returns the rules of gitleaks. It panics if gitleaks.toml is not in their form, which a test would have shown.
var issued = sync.OnceValue(func() []rule {
	list, err := parse(gitleaks)
	if err != nil {
		panic(err)
	}
	return list
})

// An issuedRule is one of gitleaks' rules: a secret has the form that its issuer gives it.
type issuedRule struct {
	keywords [][]byte
	re       func() *regexp.Regexp
	group    int     // of the expression: what is secret; 0 for the first group that matches something, or else for all
	entropy  float64 // every secret has more, in bits for a character
	allowed  []allowed
}

// An allowed is what is no secret although the expression of a rule matches it.
type allowed struct {
	target      string // that the expressions are matched with: "match", "line", or else the secret
	expressions []*regexp.Regexp
	stopwords   [][]byte
}

// generic is the rule that goes by names of secrets and not by their forms. It alone needs its exceptions: those of other rules
// are for examples in documents, whose loss does no harm.
const generic = "generic-api-key"

// parse returns the rules of a configuration of gitleaks that find secrets in text. The path of a file, which some rules want,
// is not regarded, because a log may hold the contents of any file.
func parse(text []byte) ([]rule, error) {
	var config struct {
		Rules []struct {
			ID, Regex   string
			Keywords    []string
			SecretGroup int
			Entropy     float64
			Allowlists  []struct {
				RegexTarget        string
				Regexes, Stopwords []string
			}
		}
	}
	if err := toml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("the rules of gitleaks: %w", err)
	}
	var list []rule
	for _, r := range config.Rules {
		if r.Regex == "" || len(r.Keywords) == 0 { // it finds files
			continue
		}
		// Most texts have no need of most expressions, which take long to compile.
		is := &issuedRule{keywords: keywordsOf(r.Keywords), group: r.SecretGroup, entropy: r.Entropy,
			re: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Regex) })}
		for _, a := range r.Allowlists {
			if r.ID != generic {
				break
			}
			is.allowed = append(is.allowed, allowed{target: a.RegexTarget, stopwords: keywordsOf(a.Stopwords)})
			for _, e := range a.Regexes {
				re, err := regexp.Compile(e)
				if err != nil {
					return nil, fmt.Errorf("the rules of gitleaks: %s: %w", r.ID, err)
				}
				of := &is.allowed[len(is.allowed)-1].expressions
				*of = append(*of, re)
			}
		}
		list = append(list, rule{r.ID, is.find})
	}
	return list, nil
}

// find finds the secrets of a rule.
func (r *issuedRule) find(text, lower []byte) []finding {
	if !slices.ContainsFunc(r.keywords, func(k []byte) bool { return bytes.Contains(lower, k) }) {
		return nil
	}
	var list []finding
	for _, m := range (expression{r.keywords, r.re()}).all(text, lower) {
		group := r.group
		for g := 1; group == 0 && 2*g < len(m); g++ {
			if m[2*g] >= 0 && m[2*g] < m[2*g+1] {
				group = g
			}
		}
		if m[2*group] < 0 {
			continue
		}
		f := finding{m[2*group], m[2*group+1], Gone}
		if value := text[f.start:f.end]; entropy(value) > r.entropy && !r.allows(value, text[m[0]:m[1]], text[m[0]:lineEnd(text, m[1])]) {
			list = append(list, f)
		}
	}
	return list
}

// allows reports whether a value is no secret, with its match and its line.
func (r *issuedRule) allows(value, match, line []byte) bool {
	return slices.ContainsFunc(r.allowed, func(a allowed) bool {
		target := value
		switch a.target {
		case "match":
			target = match
		case "line":
			target = line
		}
		lower := lowered(value)
		return slices.ContainsFunc(a.expressions, func(re *regexp.Regexp) bool { return re.Match(target) }) ||
			slices.ContainsFunc(a.stopwords, func(w []byte) bool { return bytes.Contains(lower, w) })
	})
}

// entropy returns the entropy of a text, in bits for a character.
func entropy(text []byte) float64 {
	count := map[rune]float64{}
	n := 0.0
	for _, r := range string(text) {
		count[r]++
		n++
	}
	bits := 0.0
	for _, c := range count {
		bits -= c / n * math.Log2(c/n)
	}
	return bits
}
