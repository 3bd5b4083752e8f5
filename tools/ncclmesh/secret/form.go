package secret

import (
	"bytes"
	"encoding/base64"
	"regexp"
)

var (
	begun  = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)
	ended  = regexp.MustCompile(`(?:[A-Za-z0-9+/=]{16,}(?:\r?\n|\\n))+[A-Za-z0-9+/=]*(?:\r?\n|\\n)?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----`)
	puttys = regexp.MustCompile(`(?m)^Private-Lines: [0-9]+\r?\n((?:[A-Za-z0-9+/=]+\r?\n)+)`)
)

// privateKeys finds them in PEM, whole ones and the rest of one whose beginning was cut off, and in PuTTY's form.
func privateKeys(text, _ []byte) []finding {
	var list []finding
	if bytes.Contains(text, []byte("PRIVATE KEY")) {
		for _, re := range []*regexp.Regexp{begun, ended} {
			for _, m := range re.FindAllIndex(text, -1) {
				list = append(list, finding{m[0], m[1], Gone})
			}
		}
	}
	if bytes.Contains(text, []byte("Private-Lines:")) {
		for _, m := range puttys.FindAllSubmatchIndex(text, -1) {
			list = append(list, finding{m[2], m[3], Gone + "\n"})
		}
	}
	return list
}

var (
	scheme  = near("bearer apikey token negotiate ntlm", `(?i)\b(?:(?:bearer|apikey)[ \t]+([A-Za-z0-9._~+/=-]{8,})|(?:token|negotiate|ntlm)[ \t]+([A-Za-z0-9._~+/=-]{20,}))`)
	basic   = near("basic", `(?i)\bbasic[ \t]+([A-Za-z0-9+/_-]{6,}={0,2})`)
	stated  = near("pass token secret key", `(?i)\b(?:password|passphrase|passwd|token|secret|api[ _-]?key)[ \t]+(?:is|was)[ \t]+["']?([^\s"']{6,})`)
	phrased = []expression{
		near("login", `(?i)\blogin\s+\S+\s+password\s+(\S+)`), // .netrc
		near("identified", `(?i)\bidentified\s+by\s+(?:password\s+)?\\?["']([^"'\\]+)`),
		near("magic-cookie", `\bMIT-MAGIC-COOKIE-1\s+([0-9A-Fa-f]+)`),
		near("sudo", `\becho\s+(?:-n\s+)?["']?([^\s"'|]+)["']?\s*\|\s*sudo\s+(?:-\w+\s+)*-\w*S\b`),
		near("requirepass masterauth", `(?m)^[ \t]*(?:requirepass|masterauth)[ \t]+(\S+)`), // Redis
		near("wandb", `\bwandb\s+login\s+(?:--\S+\s+)*([0-9A-Za-z_]{20,})`),
	}
)

const digits = "0123456789"

// phrases finds secrets that a word before them announces.
func phrases(text, lower []byte) []finding {
	var list []finding
	for _, m := range scheme.all(text, lower) {
		if m[2] < 0 {
			m = m[2:]
		}
		if v := text[m[2]:m[3]]; bytes.ContainsAny(v, digits) || len(v) >= 30 {
			list = append(list, finding{m[2], m[3], Gone})
		}
	}
	for _, m := range basic.all(text, lower) {
		v := bytes.TrimRight(text[m[2]:m[3]], "=")
		plain, err := base64.RawStdEncoding.DecodeString(string(v))
		if err == nil && bytes.IndexByte(plain, ':') >= 0 { // user:password
			list = append(list, finding{m[2], m[3], Gone})
		}
	}
	for _, m := range stated.all(text, lower) {
		if bytes.ContainsAny(text[m[2]:m[3]], digits) || oneOf(text[m[2]-1], `"'`) {
			list = append(list, finding{m[2], m[3], Gone})
		}
	}
	for _, e := range phrased {
		for _, m := range e.all(text, lower) {
			list = append(list, finding{m[2], m[3], Gone})
		}
	}
	return list
}

// shapes are forms of secrets, wider than those of gitleaks where a prefix alone tells: issuers change lengths.
var shapes = []expression{
	near("hf_ gho_ ghp_ ghr_ ghs_ ghu_", `\b(?:hf_[A-Za-z0-9]{14,}|gh[opusr]_[A-Za-z0-9]{10,})`),
	near("github_pat_ npm_ dop_v1_ wandb_v1_ dckr_pat_", `\b(?:(?:github_pat|wandb_v1|dckr_pat)_[\w-]{10,}|npm_[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{10,})`),
	near("sk- sk_ rk_ xapp- xox nvapi- gldt- glpat- glrt- pypi- tskey-", `\b(?:sk-[\w-]{10,}|[rs]k_(?:live|test)_\w{10,}|(?:xapp|xox[abeoprs]|nvapi|gl(?:dt|pat|rt))-[\w-]{10,}|pypi-[\w-]{30,}|tskey-\w+-[\w-]{10,})`),
	near("hvs. ya29. akia asia aiza age-secret-key-1", `\b(?:(?:hvs|ya29)\.[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{20,})`),
	near("eyj", `\beyJ[\w-]{10,}\.[\w-]+(?:\.[\w-]*)?`),                                                                          // a JSON Web Token
	near("$1$ $2a$ $2b$ $2x$ $2y$ $5$ $6$ $7$ $y$ $gy$ $argon2", `\$(?:1|2[abxy]|5|6|7|y|gy|argon2[di]{1,2})\$[\w./$,=+-]{20,}`), // hashes of passwords
}

// forms finds secrets by their form.
func forms(text, lower []byte) []finding {
	var list []finding
	for _, e := range shapes {
		for _, m := range e.all(text, lower) {
			list = append(list, finding{m[0], m[1], Gone})
		}
	}
	return list
}
