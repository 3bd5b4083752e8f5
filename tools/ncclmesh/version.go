package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/library"
)

func versionCommand(sys *system) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the build of this command, and which plugin NCCL would find here",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			writeVersion(sys.stdout, sys.getenv)
			return nil
		},
	}
}

func writeVersion(w io.Writer, getenv func(string) string) {
	fmt.Fprintf(w, "ncclmesh %s, protocol %d, %s %s\n", handshake.Build(), handshake.Version, runtime.Version(), runtime.GOARCH)
	found := library.Find(getenv)
	for _, l := range found {
		fmt.Fprintf(w, "plugin %s: %s\n", l.Path, describe(l))
	}
	if len(found) == 0 {
		fmt.Fprintf(w, "plugin: no %s where the dynamic linker looks\n", library.Name)
	}
}

func describe(l library.Library) string {
	switch {
	case l.Err != nil:
		return l.Err.Error()
	case l.Same:
		return "of the same build"
	}
	return "of another build"
}
