package secret

var (
	// userInfo matches what stands before the host of a URL, and before that of a proxy without a scheme.
	userInfo = near("@", "(?:[A-Za-z][A-Za-z0-9+.-]*:\\\\?/\\\\?/|(?i:proxy)[\\w.-]*[\"']?[ \t]*[=:][ \t]*[\"']?)([^\\s\"'`<>/\\\\]*)@")
	// hook matches what follows the word hook in a URL, which is as good as a password.
	hook = near("hook", "(?i)https?:\\\\?/\\\\?/[^\\s\"'`<>]*?hook[^\\s\"'`<>/?]*[/?]([^\\s\"'`<>)\\]]+)")
	// bot matches the token in a URL of Telegram's.
	bot = near("/bot", `/bot([0-9]{5,}:[\w-]{20,})`)
)

// urls finds user information in URLs, and URLs that whoever knows them may use.
func urls(text, lower []byte) []finding {
	var list []finding
	for _, re := range []expression{userInfo, hook, bot} {
		for _, m := range re.all(text, lower) {
			if m[3] > m[2] && string(text[m[2]:m[3]]) != "git" {
				list = append(list, finding{m[2], m[3], Gone})
			}
		}
	}
	return list
}
