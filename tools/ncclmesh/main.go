package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"ncclmesh/handshake"
	"ncclmesh/printable"
	"ncclmesh/tools/ncclmesh/launch"
)

// Statuses. All that is not a failure is a wrong call.
const (
	statusFailed = 1
	statusUsage  = 2
)

// failure is an error that no other command line or environment would have saved from.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// system is what the command gets of the process that it runs in.
type system struct {
	environ        []string
	stdout, stderr io.Writer
}

func (s *system) getenv(name string) (value string) {
	for _, kv := range s.environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			value = v
		}
	}
	return value
}

func main() {
	os.Exit(run(&system{os.Environ(), os.Stdout, os.Stderr}, os.Args[1:]))
}

// run runs a command line and returns the status.
func run(sys *system, args []string) int {
	root := command(sys)
	root.SetArgs(args)
	root.SetOut(sys.stdout)
	root.SetErr(sys.stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if err == errFound { // and said
		return statusFailed
	}
	if ended := endedError(0); errors.As(err, &ended) {
		return int(ended)
	}
	fmt.Fprintln(sys.stderr, hang("ncclmesh: "+strings.ReplaceAll(lines(suggest(err.Error())), "\n", "\nncclmesh: "), columns(sys.stderr)))
	if ended := (*launch.StatusError)(nil); errors.As(err, &ended) {
		return ended.Status
	}
	if errors.As(err, &failure{}) {
		return statusFailed
	}
	return statusUsage
}

// command is the root of all commands.
func command(sys *system) *cobra.Command {
	root := &cobra.Command{
		Use:           "ncclmesh",
		Short:         "Check, measure and watch meshes for the NCCL plugin libnccl-net-mesh.so",
		Version:       fmt.Sprintf("%s, protocol %d", handshake.Build(), handshake.Version),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("ncclmesh {{.Version}}\n")
	root.AddCommand(agentCommand(sys, os.Stdin), benchCommand(sys), doctorCommand(sys), envCommand(sys), explainCommand(sys), loadCommand(), manCommand(sys), metricsCommand(sys), netplanCommand(sys),
		relayCommand(sys), reportCommand(sys), runCommand(sys), statusCommand(sys), topoCommand(sys), upCommand(sys), versionCommand(sys))
	fitHelp(sys, root)
	return root
}

// suggest makes one line of cobra's suggestions for a command that does not exist.
func suggest(text string) string {
	before, names, ok := strings.Cut(text, "\n\nDid you mean this?\n")
	if !ok {
		return text
	}
	return before + "; did you mean " + strings.Join(strings.Fields(names), " or ") + "?"
}

// lines makes each line of a text printable. Names of interfaces and files, which errors hold, may be of any bytes.
func lines(text string) string {
	all := strings.Split(text, "\n")
	for i, line := range all {
		all[i] = printable.Line(line, len(line))
	}
	return strings.Join(all, "\n")
}
