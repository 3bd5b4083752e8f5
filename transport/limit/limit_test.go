package limit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOwn(t *testing.T) {
	tests := []struct {
		err  error
		want string // "" for what is none of this node's
	}{
		{nil, ""},
		{io.EOF, ""},
		{os.NewSyscallError("connect", unix.ECONNREFUSED), ""},
		{os.NewSyscallError("socket", unix.EMFILE), "socket: too many open files: this process is out of file descriptors"},
		{fmt.Errorf("lane: %w", os.NewSyscallError("fcntl", unix.EMFILE)), "(ulimit -n)"},
		{unix.ENFILE, "fs.file-max"},
		{unix.ENOMEM, "out of memory for sockets"},
		{unix.ENOBUFS, "out of memory for sockets"},
	}
	for _, tt := range tests {
		got := Own(tt.err)
		switch {
		case !errors.Is(got, tt.err):
			t.Errorf("%v does not wrap %v", got, tt.err)
		case tt.want == "" && (got != tt.err || IsOwn(tt.err)):
			t.Errorf("%v became %v", tt.err, got)
		case tt.want != "" && (!IsOwn(tt.err) || !strings.Contains(got.Error(), tt.want) || Own(got) != got):
			t.Errorf("%v became %v, want one that says %q", tt.err, got, tt.want)
		}
	}
}
