package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"ncclmesh/printable"
)

// Schema names the form of an archive's index.
const Schema = "ncclmesh.report/1"

// maxSource is how much is taken of one source: its end, which in a log is what matters. Tests take less.
var maxSource = 4 << 20

// A Source is one file of the archive to be.
type Source struct {
	Name  string // in the archive
	Holds string // what the file holds, in a few words
	Read  func(context.Context) ([]byte, error)
}

// An Item says what became of a source.
type Item struct {
	Name     string `json:"name"`
	Holds    string `json:"holds"`
	Bytes    int    `json:"bytes"`
	Cut      bool   `json:"cut,omitempty"`      // whether only the end of it is there
	Redacted Count  `json:"redacted,omitempty"` // what was taken out of it
	Error    string `json:"error,omitempty"`    // why it is not there, or not whole
}

// Index is the archive's first file, index.json.
type Index struct {
	Schema    string    `json:"schema"`
	Build     string    `json:"build"`
	Time      time.Time `json:"time"`
	Addresses string    `json:"addresses"`
	Items     []Item    `json:"items"`
}

// File is a source that reads a file. One that is not there is none: it says so.
func File(name, holds, path string) Source {
	return Source{name, holds, func(context.Context) ([]byte, error) { return readEnd(path) }}
}

// readEnd reads a file, or of a long one the end. Those of /proc and /sys do not tell how long they are.
func readEnd(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > int64(maxSource) {
		if _, err := f.Seek(-int64(maxSource+1), io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, int64(maxSource+1)))
}

// Tree is a source of all small files below a directory that match one of the patterns, which are relative to it: a line
// each, as sysfs has them.
func Tree(name, holds, dir string, patterns ...string) Source {
	return Source{name, holds, func(context.Context) ([]byte, error) {
		var b bytes.Buffer
		var errs []error
		for _, pattern := range patterns {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			errs = append(errs, err)
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					if !errors.Is(err, fs.ErrInvalid) { // what does not apply to a device
						fmt.Fprintf(&b, "%s: %v\n", path, err)
					}
					continue
				}
				fmt.Fprintf(&b, "%s: %s\n", path, strings.TrimSpace(string(text)))
			}
		}
		return b.Bytes(), errors.Join(errs...)
	}}
}

// An Archive is what is to be written.
type Archive struct {
	Index Index
	top   string // directory that all files are in
	files []file
}

// A file is one of an archive.
type file struct {
	name string
	text []byte
}

// Gather reads the sources of an archive, whose files are all below the directory top. It fails if anything in them is what
// must not be there.
func Gather(ctx context.Context, top, build string, now time.Time, sources []Source, r *Redactor) (*Archive, error) {
	a := &Archive{Index: Index{Schema: Schema, Build: build, Time: now.UTC().Truncate(time.Second), Addresses: "as they are"}, top: top}
	if r.Addresses {
		a.Index.Addresses = "redacted"
	}
	a.files = []file{{"index.json", nil}}
	for _, s := range sources {
		text, err := s.Read(ctx)
		item := Item{Name: r.String(s.Name), Holds: s.Holds}
		if err != nil {
			item.Error = r.String(err.Error())
		}
		if item.Cut = len(text) > maxSource; item.Cut {
			text = text[len(text)-maxSource:]
			_, text, _ = bytes.Cut(text, []byte("\n")) // half a line may be half a secret
		}
		text, item.Redacted = r.Text(text)
		item.Bytes = len(text)
		a.Index.Items = append(a.Index.Items, item)
		if len(text) > 0 || err == nil {
			a.files = append(a.files, file{item.Name, text})
		}
	}
	var err error
	if a.files[0].text, err = json.MarshalIndent(a.Index, "", "  "); err != nil {
		return nil, err
	}
	for _, f := range a.files {
		if err := errors.Join(r.Leaks(f.text), r.Leaks([]byte(f.name)), r.Leaks([]byte(top))); err != nil {
			return nil, fmt.Errorf("nothing is written: after redaction %s still %w; please report that, without the file", f.name, err)
		}
	}
	return a, nil
}

// Text returns a file of the archive, and whether it is there.
func (a *Archive) Text(name string) ([]byte, bool) {
	for _, f := range a.files {
		if f.name == name {
			return f.text, true
		}
	}
	return nil, false
}

// List writes a table of the archive's files, of what they hold, and of what was taken out of them.
func (a *Archive) List(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FILE\tBYTES\tREDACTED\tHOLDS")
	fmt.Fprintf(t, "index.json\t%d\t\tthis list, in detail\n", len(a.files[0].text))
	for _, item := range a.Index.Items {
		holds := item.Holds
		if item.Cut {
			holds += "; only its end"
		}
		if item.Error != "" {
			holds = "not there: " + item.Error
			if item.Bytes > 0 {
				holds = item.Holds + "; not whole: " + item.Error
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", printable.Line(item.Name, maxCell), item.Bytes, item.Redacted, printable.Line(holds, maxCell))
	}
	return t.Flush()
}

// maxCell is how much of an error or a name fits into the table.
const maxCell = 200

// Files is how many files the archive has.
func (a *Archive) Files() int { return len(a.files) }

// Write writes the archive, gzip and tar.
func (a *Archive) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range a.files {
		h := &tar.Header{Name: a.top + "/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: a.Index.Time, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
