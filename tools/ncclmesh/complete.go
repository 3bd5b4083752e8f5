package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// completeHosts offers a shell the hosts that ssh knows by name, and this node, each once.
func completeHosts(sys *system) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if c.ArgsLenAtDash() > 0 {
			return nil, cobra.ShellCompDirectiveDefault // a command and its files
		}
		ssh := filepath.Join(sys.getenv("HOME"), ".ssh")
		all := []cobra.Completion{cobra.CompletionWithDesc("localhost", "this node")}
		for _, host := range append(configured(filepath.Join(ssh, "config")), seen(filepath.Join(ssh, "known_hosts"))...) {
			if !slices.Contains(all, host) && !slices.Contains(args, host) {
				all = append(all, host)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// configured returns the names after Host in a file of ssh_config(5), but for patterns. A file that cannot be read has none.
func configured(file string) (names []string) {
	for _, words := range lineWords(file) {
		if strings.EqualFold(words[0], "Host") {
			names = append(names, slices.DeleteFunc(words[1:], func(n string) bool { return strings.ContainsAny(n, "*?!") })...)
		}
	}
	return names
}

// seen returns the names in a file of known hosts, but for hashed ones, ports and keys of authorities.
func seen(file string) (names []string) {
	for _, words := range lineWords(file) {
		if !strings.HasPrefix(words[0], "@") {
			names = append(names, slices.DeleteFunc(strings.Split(words[0], ","), func(n string) bool { return strings.ContainsAny(n, "|[*?!") })...)
		}
	}
	return names
}

// lineWords returns the words of each line that has any and is no comment.
func lineWords(file string) (all [][]string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(strings.Replace(line, "=", " ", 1)); len(words) > 0 && words[0][0] != '#' {
			all = append(all, words)
		}
	}
	return all
}
