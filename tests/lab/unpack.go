package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
)

// unpack writes the files of a package below root for which keep is true. Nothing can be written outside root.
func unpack(ctx context.Context, debFile string, root *os.Root, keep func(name string) bool) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", debFile)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpack %s: %w", path.Base(debFile), err)
	}
	err = untar(out, root, keep)
	_, _ = io.Copy(io.Discard, out)
	if werr := cmd.Wait(); werr != nil && err == nil {
		err = fmt.Errorf("%w: %s", werr, strings.TrimSpace(stderr.String()))
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", path.Base(debFile), err)
	}
	return nil
}

func untar(r io.Reader, root *os.Root, keep func(string) bool) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" || !keep(name) {
			continue
		}
		if err := extract(t, h, name, root); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func extract(t *tar.Reader, h *tar.Header, name string, root *os.Root) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	exists := func(err error) error {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return exists(root.Mkdir(name, 0o755))
	case tar.TypeSymlink:
		return exists(root.Symlink(h.Linkname, name))
	case tar.TypeLink:
		return exists(root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name))
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fs.FileMode(h.Mode)&0o777|0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, t)
		return errors.Join(err, f.Close())
	}
	return nil // device nodes: the guest has its own /dev
}
