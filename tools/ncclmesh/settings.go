package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/ncclnet/config"
	"ncclmesh/transport"
)

// settings are the plugin's, for a process that is there for nothing but relaying.
func settings(sys *system, keyFile string) (config.Config, error) {
	c, err := config.Read(sys.getenv)
	if err != nil {
		return c, err
	}
	if c.Transport.Relay == transport.RelayOff {
		return c, errors.New("NCCL_MESH_RELAY=0 disables relaying, which is all that this command does; unset it")
	}
	if keyFile != "" {
		if c.Transport.Key != "" {
			return c, errors.New("--key-file and NCCL_MESH_KEY are both given; unset one of them")
		}
		if c.Transport.Key, err = readKey(keyFile); err != nil {
			return c, err
		}
	}
	c.Transport.Dedicated = true
	return c, nil
}

// kind names what a file is that is no regular one.
func kind(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&os.ModeNamedPipe != 0:
		return "named pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// maxKey is more than anybody's key has.
const maxKey = 4096

// readKey reads a key from a file that only its owner may read.
func readKey(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that nobody writes to does not block
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return "", fmt.Errorf("the key's file %s is a %s; want a regular file, as a key that comes from elsewhere is not kept for its owner alone", path, kind(mode))
	case mode.Perm()&0o077 != 0:
		return "", fmt.Errorf("the key's file %s is open to others than its owner (mode %04o): run chmod 600 %[1]s, and change the key if others have read it", path, mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if len(text) > maxKey {
		return "", fmt.Errorf("the key's file %s has %d bytes; want %d at most", path, info.Size(), maxKey)
	}
	if err := config.CheckKey(key); err != nil {
		return "", fmt.Errorf("the key in the file %s: %w", path, err)
	}
	return key, nil
}
