package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", "/", "directory with usr/include/infiniband and libibverbs.pc")
	goDir := flag.String("go", "", "directory to write the Go files to")
	record := flag.String("layout", "", "JSON file to record the layout in; one of another release is compared instead")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stderr, *root, *goDir, *record); err != nil {
		fmt.Fprintln(os.Stderr, "abigen:", err)
		os.Exit(1)
	}
}

// run reads the headers below root and writes everything or nothing.
func run(log io.Writer, root, goDir, record string) error {
	l, err := readHeaders(root)
	if err != nil {
		return err
	}
	files, err := emit(l)
	if err != nil {
		return err
	}
	out := map[string][]byte{}
	if goDir != "" {
		for name, src := range files {
			out[filepath.Join(goDir, name)] = src
		}
	}
	if record != "" {
		old, err := readLayout(record)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case old.RDMACore != l.RDMACore:
			if err := sameABI(old, files); err != nil {
				return fmt.Errorf("rdma-core %s differs from %s as recorded in %s: %w", l.RDMACore, old.RDMACore, record, err)
			}
			fmt.Fprintf(log, "abigen: the headers are rdma-core %s; they agree with %s, which stays as recorded from %s\n",
				l.RDMACore, record, old.RDMACore)
			record = ""
		}
	}
	if record != "" {
		if out[record], err = l.encode(); err != nil {
			return err
		}
	}
	for name, b := range out {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sameABI reports the first line in which the Go files of a recorded layout differ from those of the headers at hand.
func sameABI(old *layout, files map[string][]byte) error {
	recorded, err := emit(old)
	if err != nil {
		return err
	}
	for name, src := range files {
		if was, now, ok := firstDifference(recorded[name], src); ok {
			return fmt.Errorf("%s would change from %q to %q: look at the header before changing the table", name, was, now)
		}
	}
	return nil
}

func firstDifference(a, b []byte) (was, now string, ok bool) {
	x, y := lines(a), lines(b)
	for i := range max(len(x), len(y)) {
		was, now = "", ""
		if i < len(x) {
			was = x[i]
		}
		if i < len(y) {
			now = y[i]
		}
		if was != now {
			return was, now, true
		}
	}
	return "", "", false
}

func lines(b []byte) []string { return strings.Split(string(b), "\n") }
