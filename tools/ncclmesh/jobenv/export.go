package jobenv

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/library"
)

// Exports are what a job needs to have set, in the order in which people read them.
func Exports(found []library.Library) (Variables, error) {
	if len(found) == 0 {
		return nil, fmt.Errorf("%s is not where the dynamic linker looks: install the package libnccl-net-mesh, or name it with --library FILE", library.Name)
	}
	var errs []error
	for _, l := range found {
		if l.Err != nil {
			errs = append(errs, l.Err)
			continue
		}
		plugin := l.Path
		if l.ByName && len(errs) == 0 {
			plugin = "mesh" // which every version of NCCL takes
		}
		return Variables{
			{Name: "NCCL_NET_PLUGIN", Value: plugin},
			{Name: "NCCL_NET", Value: "mesh"},
			// NCCL 2.28.3 to 2.29.7 forget the plugin's name when they unload it.
			{Name: "NCCL_NET_PLUGIN_REF_COUNT", Value: "1"},
		}, nil
	}
	return nil, errors.Join(errs...)
}

// Over returns what holds where v is set over what was there.
func (v Variables) Over(before Variables) Variables {
	after := slices.Clone(v)
	for _, x := range before {
		if _, ok := v.Get(x.Name); !ok {
			after = append(after, x)
		}
	}
	return after
}

// Quote writes a value as a POSIX shell reads it.
func Quote(value string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=,@%+", r)
	}
	if value != "" && strings.IndexFunc(value, func(r rune) bool { return !plain(r) }) < 0 {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
