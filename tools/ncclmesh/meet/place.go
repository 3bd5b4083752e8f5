package meet

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// DefaultPort is where rank 0 listens: next to that of the plugin's neighbour discovery.
const DefaultPort = 20046

// A Place is a process among those of its job.
type Place struct {
	Rank, Size int
	Local      int    // rank among those of its node
	Master     string // address or name of rank 0's node
}

// launchers are what those who start jobs call things.
var launchers = []struct{ name, rank, size, local string }{
	{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
	{"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
	{"MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
}

// Find is this process's place, as its environment has it.
func Find(getenv func(string) string) (Place, error) {
	for _, l := range launchers {
		if getenv(l.rank) == "" {
			continue
		}
		p := Place{Master: getenv("MASTER_ADDR")}
		for _, v := range []struct {
			name string
			to   *int
			most int
		}{{l.size, &p.Size, 1 << 16}, {l.rank, &p.Rank, 1<<16 - 1}, {l.local, &p.Local, 1<<16 - 1}} {
			n, err := strconv.ParseUint(getenv(v.name), 10, 32)
			if err != nil || n > uint64(v.most) {
				return Place{}, fmt.Errorf("%s=%q: want a number up to %d, as %s sets it", v.name, getenv(v.name), v.most, l.name)
			}
			*v.to = int(n)
		}
		switch {
		case p.Rank >= p.Size:
			return Place{}, fmt.Errorf("%s=%d and %s=%d: want a rank below the number of ranks", l.rank, p.Rank, l.size, p.Size)
		case p.Master == "":
			return Place{}, errors.New("MASTER_ADDR is not set: want an address of rank 0's node that all nodes reach, as mpirun -x MASTER_ADDR=10.0.0.1 gives it")
		}
		if _, _, err := net.SplitHostPort(p.Master); err == nil {
			return Place{}, fmt.Errorf("MASTER_ADDR=%q: want it without a port", p.Master)
		}
		return p, nil
	}
	return Place{}, errors.New("this process is no rank: none of RANK (torchrun), OMPI_COMM_WORLD_RANK, PMI_RANK (mpirun) and SLURM_PROCID (srun) is set; name hosts instead")
}
