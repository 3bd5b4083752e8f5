package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// --textfile puts a whole file into the place of the last one, and leaves nothing else.
func TestTextfile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, text := range []string{"first\n", "second\n"} {
		if err := toTextfile(dir, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, textfileName))
		if string(got) != text || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	inTheWay := t.TempDir()
	if err := os.Mkdir(filepath.Join(inTheWay, textfileName), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := toTextfile(inTheWay, nil); err == nil {
		t.Error("a directory was replaced")
	}
	if entries, _ := os.ReadDir(inTheWay); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// A scrape is answered, at /metrics alone, until the command is told to end.
func TestListen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said, out := io.Pipe()
	over := make(chan error, 1)
	m := &exporter{find: func() ([]string, error) { return nil, nil }}
	go func() { over <- m.serve(ctx, &system{stderr: out}, "127.0.0.1:0") }()
	line, err := bufio.NewReader(said).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "ncclmesh: metrics at ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	for path, want := range map[string]int{url: http.StatusOK, strings.TrimSuffix(url, "/metrics") + "/": http.StatusNotFound} {
		answer, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want || err != nil || want == http.StatusOK && !strings.HasSuffix(string(body), "ncclmesh_unreadable_processes 0\n") {
			t.Errorf("%s: %d, %v: %s", path, answer.StatusCode, err, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
