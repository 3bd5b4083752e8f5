package fleet

import (
	"debug/elf"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"
)

// What pushScript says of a host that cannot run the program.
const (
	wrongMachine = "--push: the program is for"
	noDirectory  = "--push: programs may run in none of"
)

// pushScript runs the agent from a directory of its own, which goes with it: in the first place in which a program may be written
// and run, because /tmp may be mounted noexec. It is read by sh together with the program, which stands in it: nothing but one shell is asked of
// a host. The agent's input is what follows, of which nothing is sent before the agent's hello, as a shell may read ahead.
const pushScript = `m=$(uname -m)
if [ "$m" != %[1]s ]; then echo "` + wrongMachine + ` %[1]s, this host is $m" >&2; exit 126; fi
umask 077
d=
trap '[ -z "$d" ] || rm -rf "$d"' EXIT
trap 'exit 1' HUP INT TERM PIPE
for t in "${TMPDIR:-/tmp}" /var/tmp "$XDG_RUNTIME_DIR" "$HOME" /dev/shm; do
	d=$([ -z "$t" ] || mktemp -d "$t/ncclmesh.XXXXXXXX" 2>/dev/null)
	[ -n "$d" ] || continue
	echo '#!/bin/sh' >"$d/ncclmesh" && chmod 700 "$d/ncclmesh" && "$d/ncclmesh" </dev/null 2>/dev/null && break
	rm -rf "$d"; d=
done
if [ -z "$d" ]; then echo "` + noDirectory + ` ${TMPDIR:-/tmp}, /var/tmp, ${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR, }$HOME, /dev/shm" >&2; exit 126; fi
base64 -d >"$d/ncclmesh" <<'.' || exit 126
`

// pushRun ends with the line that starts the agent, which a shell starts when it has read all of it: of a line behind, the agent
// could read a part.
const pushRun = `
.
chmod 700 "$d/ncclmesh" || exit 126
"$d/ncclmesh" agent; exit $?
`

// machines are what uname says of what ELF says.
var machines = map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64"}

// openLoad opens the script that carries a program.
func openLoad(path string) (io.ReadCloser, error) {
	program, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--push: %s is no program: %v", path, err)
	}
	machine, ok := machines[program.Machine]
	_ = program.Close() // which was only read
	if !ok {
		return nil, fmt.Errorf("--push: %s is a program for %v; want one for x86_64 or aarch64", path, program.Machine)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--push: %w", err)
	}
	r, w := io.Pipe()
	go func() {
		defer f.Close()
		e := base64.NewEncoder(base64.StdEncoding, &folded{out: w})
		_, err := io.Copy(e, f)
		if err == nil {
			err = e.Close()
		}
		_ = w.CloseWithError(err)
	}()
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(fmt.Sprintf(pushScript, machine)), r, strings.NewReader(pushRun)), r}, nil
}

// folded breaks base64 into lines, which some shells want.
type folded struct {
	out io.Writer
	at  int
}

const fold = 76 * 50

func (f *folded) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+fold-f.at)]
		if _, err := f.out.Write(part); err != nil {
			return n, err
		}
		n += len(part)
		if f.at += len(part); f.at == fold {
			if _, err := f.out.Write([]byte{'\n'}); err != nil {
				return n, err
			}
			f.at = 0
		}
	}
	return n, nil
}
