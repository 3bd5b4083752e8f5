package fabric

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Tested is set, to the directory of the launcher's companions, in a program that
// Again has started.
const Tested = "FAKEVERBS_TOOLS"

// Again runs this test program again, as a process on a node of the topology,
// and ends with its status: a library that is loaded at run time must be in the
// environment from the start. It returns only when that cannot be done; a test
// program calls it first thing in TestMain, unless Tested is set. Where no
// namespace can be made the node shares this machine's network.
func Again(build, topology, node string) error {
	dir, err := Build(build, "fakeverbs")
	if err != nil {
		return err
	}
	tools := Tools(dir)
	temp, err := os.MkdirTemp("", "fabric")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	file := filepath.Join(temp, "topology.txt")
	if err := os.WriteFile(file, []byte(topology), 0o600); err != nil {
		return err
	}
	fakenet := filepath.Join(tools, "fakenet")
	args := []string{"run", "-n", node, file}
	if exec.Command(fakenet, append(args, "true")...).Run() != nil {
		args = []string{"run", "-p", "-n", node, file}
	}
	cmd := exec.Command(fakenet, append(append(args, os.Args[0]), os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), Tested+"="+tools)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("run the tests on a node: %w", err)
	}
	_ = os.RemoveAll(temp)
	os.Exit(cmd.ProcessState.ExitCode())
	return nil
}
