package fakeverbs

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// TestEcho is the other end of TestReach, in a process of its own: it says hello
// to whoever connects.
func TestEcho(t *testing.T) {
	if os.Getenv("ECHO") == "" {
		t.Skip("runs as a part of TestReach")
	}
	l, err := net.Listen("tcp", ":7000")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(c, "hello")
		c.Close()
	}
}
