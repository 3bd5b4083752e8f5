package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// A layout is what one release of rdma-core looks like on every architecture: all members of the mirrored structures
// and the constants of the table.
type layout struct {
	RDMACore  string           `json:"rdma_core"`
	Constants map[string]int64 `json:"constants"`
	Arch      map[string]arch  `json:"arch"` // by GOARCH
}

type arch map[string]structure // by C name

type structure struct {
	Size    int      `json:"size"`
	Align   int      `json:"align"`
	Members []member `json:"members"`
}

// A member is a leaf or an inner node of a structure. Types are spelt u8 to u64, i8 to i64, ptr, "struct x", "union x",
// bits, and T[n] for arrays.
type member struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Size   int    `json:"size"`
	Align  int    `json:"align"`
	Type   string `json:"type"`
}

func (s structure) member(path string) (member, bool) {
	i := slices.IndexFunc(s.Members, func(m member) bool { return m.Path == path })
	if i < 0 {
		return member{}, false
	}
	return s.Members[i], true
}

// MarshalJSON keeps a member on one line, so that a changed layout reads as a changed line.
func (m member) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"path": %q, "offset": %d, "size": %d, "align": %d, "type": %q}`,
		m.Path, m.Offset, m.Size, m.Align, m.Type), nil
}

func readLayout(file string) (*layout, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var l layout
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &l, nil
}

// encode returns the layout as indented JSON with one line per member.
func (l *layout) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	if err := enc.Encode(l); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b.Bytes(), "", "\t"); err != nil {
		return nil, err
	}
	return joinMembers(out.Bytes()), nil
}

// joinMembers puts the five lines of every member that json.Indent spread out back on one.
func joinMembers(b []byte) []byte {
	var out bytes.Buffer
	inside := false
	for line := range bytes.Lines(b) {
		text := bytes.TrimSpace(line)
		switch {
		case bytes.HasPrefix(text, []byte(`"path":`)):
			inside = true
			out.Truncate(out.Len() - 1) // the newline after the brace
			out.Write(text)
		case inside && bytes.HasPrefix(text, []byte("}")):
			inside = false
			out.Write(text)
			out.WriteByte('\n')
		case inside:
			out.WriteByte(' ')
			out.Write(text)
		default:
			out.Write(line)
		}
	}
	return out.Bytes()
}
