// Ship writes README.md, the licence and the pages under docs into a directory, as packages have them: ship DIRECTORY. It
// runs in any directory of the repository.
package main

import (
	"fmt"
	"os"

	"ncclmesh/tests/docs"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ship DIRECTORY")
		os.Exit(2)
	}
	if err := docs.Ship(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "ship:", err)
		os.Exit(1)
	}
}
