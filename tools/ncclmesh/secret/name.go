package secret

import (
	"slices"
	"strings"
)

// Name reports whether a variable, field or option of this name holds a secret: DB_PASS, api-key, privateKey. It judges
// the words of the name, so that TOKENIZERS_PARALLELISM, max_tokens, NCCL_IB_PKEY and PWD are none.
func Name(name string) bool {
	if !mayBeName(name) {
		return false
	}
	w := words(name)
	if len(w) == 0 {
		return false
	}
	last := len(w) - 1
	if slices.ContainsFunc(w, func(word string) bool { return strings.HasSuffix(word, "webhook") }) {
		return true // its URL is what is secret
	}
	if about[w[last]] && !(w[last] == "id" && last > 1 && w[last-1] == "key") || switches[w[0]] && last > 0 {
		return false
	}
	return slices.ContainsFunc(w, strong) || weak(w)
}

// stems are parts of names. The name of every secret has one of them.
var stems = []string{"key", "token", "secret", "pass", "pwd", "pw", "cred", "auth", "cookie", "webhook", "jwt", "psk", "bearer", "pat"}

// mayBeName reports whether a name has one of the stems. It is quick, because texts have many names.
func mayBeName(name string) bool {
	lower := strings.ToLower(name)
	return slices.ContainsFunc(stems, func(s string) bool { return strings.Contains(lower, s) })
}

// words returns the words of a name in lower case, without digits at their ends: API_KEY, api-key and apiKey2 have the
// same two.
func words(name string) []string {
	var list []string
	upper := func(i int) bool { return name[i] >= 'A' && name[i] <= 'Z' }
	lower := func(i int) bool { return i < len(name) && name[i] >= 'a' && name[i] <= 'z' }
	digit := func(i int) bool { return name[i] >= '0' && name[i] <= '9' }
	from := 0
	cut := func(to int) {
		if word := strings.TrimRight(strings.ToLower(name[from:to]), "0123456789"); word != "" {
			list = append(list, word)
		}
		from = to
	}
	for i := range len(name) {
		switch {
		case !upper(i) && !lower(i) && !digit(i):
			cut(i)
			from = i + 1
		case upper(i) && i > from && (!upper(i-1) || lower(i+1)):
			cut(i)
		}
	}
	cut(len(name))
	return list
}

// set returns the set of the words of a list.
func set(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

var (
	// about are last words of names that tell of a secret without holding it.
	about = set(`agent algorithm alg arn bits budget count dir directory enable enabled endpoint expires expiry file files format id ids index
		len length limit manager max method methods min mode name names parallelism path paths policy provider ref required rotation scheme size
		sizes sock socket timeout ttl type types uri url urls version`)
	// switches are first words of options that take no value.
	switches = set("disable enable no skip without")
	// holders are ends of words that name a secret wherever in a name they are.
	holders = []string{"cookie", "cookies", "credential", "credentials", "passphrase", "passphrases", "passwd", "password", "passwords", "passwort", "secret", "secrets"}
	// single are words that name a secret wherever in a name they are.
	single = set(`accesskey aeskey apikey authkey authorization bearer clientkey creds cryptkey encryptionkey gpgkey hmackey jwt licensekey masterkey
		passcode presharedkey privatekey privkey psk rsakey secretkey serverkey sharedkey signingkey signkey sshkey sslkey tlskey`)
	// coded are words that may follow the last one.
	coded = set("b64 base data hex id json pem raw value")
	// openKeys are words before "key" that make it no secret.
	openKeys = set(`cache column config dict foreign group hash host index kv l local lookup m map memory n num object param partition primary
		pub public p q query r remote row routing sort state store topology`)
	// passages are words before "pass" that make it no secret, and words that end in it and name none.
	passages = set(`backward band bandpass bypass by compass compiler encompass first forward fusion high highpass last low lowpass multi multipass one
		onepass optimizer second single singlepass test tests third trespass two`)
	// units are words before "token" that make it a piece of text, as language models count them.
	units = set(`accepted batched bos cached cls completion draft eos first generated image input last mask max min n new next num output pad per
		prompt sampled sep special stop text total unk`)
	// issuers are words before "tokens" that make them secrets.
	issuers = set("access api auth bearer refresh secret user")
	// forges are words before "pat" that make it a personal access token.
	forges = set("ado azure devops gh git github gitlab")
	// places are words before "pwd" that make it a directory.
	places = set("cur current last old work working")
)

// strong reports whether a word names a secret wherever in a name it is.
func strong(word string) bool {
	return single[word] || slices.ContainsFunc(holders, func(h string) bool { return strings.HasSuffix(word, h) })
}

// weak reports whether the last of some words names a secret, which it does not after certain other words.
func weak(w []string) bool {
	last := len(w) - 1
	if last > 0 && coded[w[last]] { // API_KEY_BASE64
		last--
	}
	before := ""
	if last > 0 {
		before = w[last-1]
	}
	switch word := w[last]; word {
	case "key", "keys":
		return !openKeys[before]
	case "token":
		return !units[before]
	case "tokens":
		return issuers[before]
	case "pass":
		return !passages[before]
	case "pwd":
		return last > 0 && !places[before]
	case "pat":
		return forges[before]
	case "auth", "auths", "oauth", "pw":
		return true
	case "oldpwd":
		return false
	default: // SSHPASS, MYSQLPWD, hftoken
		return !passages[word] && (strings.HasSuffix(word, "pass") || strings.HasSuffix(word, "pwd") || strings.HasSuffix(word, "token"))
	}
}
