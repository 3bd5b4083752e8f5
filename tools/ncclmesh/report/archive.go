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
	"time"
)

// Schema names the form of an archive's index.
const Schema = "ncclmesh.report/1"

// maxSource is how much is taken of one source: its end, which in a log is what matters. Tests take less.
var maxSource = 4 << 20

// A Source is one file of the archive to be.
type Source struct {
	Name string // in the archive
	Read func(context.Context) ([]byte, error)
}

// An Item says what became of a source.
type Item struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	Cut   bool   `json:"cut,omitempty"`
	Error string `json:"error,omitempty"` // why it is not there, or not whole
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
func File(name, path string) Source {
	return Source{name, func(context.Context) ([]byte, error) { return readEnd(path) }}
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
func Tree(name, dir string, patterns ...string) Source {
	return Source{name, func(context.Context) ([]byte, error) {
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

// Write writes the archive, gzip and tar, all files below the directory top. It returns what became of each source. Nothing
// is written when anything in it is what must not be there.
func Write(ctx context.Context, w io.Writer, top, build string, now time.Time, sources []Source, r *Redactor) ([]Item, error) {
	index := Index{Schema: Schema, Build: build, Time: now.UTC().Truncate(time.Second), Addresses: "as they are"}
	if r.Addresses {
		index.Addresses = "redacted"
	}
	type file struct {
		name string
		text []byte
	}
	files := []file{{"index.json", nil}}
	for _, s := range sources {
		text, err := s.Read(ctx)
		item := Item{Name: string(r.Text([]byte(s.Name)))}
		if err != nil {
			item.Error = string(r.Text([]byte(err.Error())))
		}
		if item.Cut = len(text) > maxSource; item.Cut {
			text = text[len(text)-maxSource:]
			_, text, _ = bytes.Cut(text, []byte("\n")) // half a line may be half a secret
		}
		text = r.Text(text)
		item.Bytes = len(text)
		index.Items = append(index.Items, item)
		if len(text) > 0 || err == nil {
			files = append(files, file{item.Name, text})
		}
	}
	var err error
	if files[0].text, err = json.MarshalIndent(index, "", "  "); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range files {
		if err := errors.Join(r.Leaks(f.text), r.Leaks([]byte(f.name)), r.Leaks([]byte(top))); err != nil {
			return nil, fmt.Errorf("nothing is written: after redaction %s still %w; please report that, without the file", f.name, err)
		}
		h := &tar.Header{Name: top + "/" + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: index.Time, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, err
	}
	_, err = w.Write(b.Bytes())
	return index.Items, err
}
