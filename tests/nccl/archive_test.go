package nccl

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entry is a member as an archive has it.
func entry(name, data string) string {
	padding := ""
	if len(data)%2 == 1 {
		padding = "\n"
	}
	return fmt.Sprintf("%-16s%-12d%-6d%-6d%-8o%-10d`\n%s%s", name, 0, 0, 0, 0o644, len(data), data, padding)
}

func TestMembers(t *testing.T) {
	const long = "a_name_of_more_than_fifteen.cu.o/\nanother_of_them.o/\n"
	tests := []struct {
		name, archive string
		want          []string
		err           string
	}{
		{"short and long names, one twice", arMagic + entry("/", "index") + entry("//", long) + entry("net.o/", "one") + entry("/34", "two") + entry("net.o/", ""),
			[]string{"net.o one", "another_of_them.o two", "net.o "}, ""},
		{"nothing", arMagic, nil, ""},
		{"something else", "\x7fELF and so on", nil, "no archive"},
		{"a member cut short", strings.TrimSuffix(arMagic+entry("net.o/", "four"), "ur"), nil, "EOF"},
		{"a header cut short", arMagic + "net.o/", nil, "EOF"},
		{"a size that is none", arMagic + strings.Replace(entry("net.o/", "one"), "3 ", "x ", 1), nil, "is none of a member"},
		{"a name that is not there", arMagic + entry("/999", "one"), nil, "not in the table"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			err := members(strings.NewReader(tt.archive), func(m member) error {
				b, err := io.ReadAll(m.data)
				got = append(got, m.name+" "+string(b))
				return err
			})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("members (-want +got):\n%s%v", diff, err)
			}
		})
	}
}

func FuzzMembers(f *testing.F) {
	f.Add(arMagic + entry("//", "a/\n") + entry("/0", "one") + entry("b/", "two"))
	f.Fuzz(func(t *testing.T, archive string) {
		total := 0
		err := members(strings.NewReader(archive), func(m member) error {
			n, err := io.Copy(io.Discard, m.data)
			total += int(n)
			return err
		})
		if err == nil && total > len(archive) {
			t.Errorf("%d bytes out of %d", total, len(archive))
		}
	})
}

func TestIsHost(t *testing.T) {
	for name, want := range map[string]bool{
		"net.o": true, "host_table.cc.o": true, "sym_kernels_host.cc.o": true,
		"onerank.cu.o": false, "device_glue.o": false, "enhcompat.o": false,
	} {
		if got := isHost(name); got != want {
			t.Errorf("isHost(%s) = %v", name, got)
		}
	}
}
