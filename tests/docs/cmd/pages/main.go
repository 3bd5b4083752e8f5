// Pages writes the generated tables and numbers of README.md and the pages under docs. It runs in any directory of the
// repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"ncclmesh/tests/docs"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func write() error {
	pages, err := docs.Pages()
	if err != nil {
		return err
	}
	facts, err := docs.ReadFacts()
	if err != nil {
		return err
	}
	for _, page := range pages {
		path := filepath.Join(docs.Root(), page)
		was, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := docs.Generate(facts, page, string(was))
		if err != nil {
			return err
		}
		if text != string(was) {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
