package main

import (
	"regexp"
	"slices"
	"strings"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/manual"
)

// What exit statuses mean. The help of a command that has more than the usual ones says so, too.
const (
	usualStatus  = "The status is 0 if the command did what it was asked to, 1 if that failed, and 2 if the\ncommand line or the environment is wrong."
	doctorStatus = "The status is 0 if nothing was found, 1 if something was found, and 2 if nothing\ncould be checked. Notes never change it; with --strict unknowns count."
	topoStatus   = "The status is 0 if all hosts have answered and all is as expected, 1 if not, 2 if\nnothing could be tried."
	envStatus    = "The status is 1 if the plugin is not found, or if something keeps NCCL from using it\nthat these lines do not correct."
	launchStatus = "The status is that of the first process that failed, and 1 where a host did. 128 and\nthe number of a signal is that of a process which the signal ended."
	linkStatus   = "The status is 0 if everything was measured, 1 if something was not, carried wrong bytes, or\nis below three quarters of what link and PCIe allow, and 2 if the command line is wrong."
	upStatus     = "The status is 0 if all is well, 1 if something was found or could not be done, and 2 if\nthe command line is wrong or nobody could be asked."
	relayStatus  = "The status is 0 after a signal, 1 if relaying could not begin, and 2 if the command\nline or the environment is wrong."
)

// Variables that several commands read.
var (
	hostVariables = []manual.Variable{
		{Name: "NCCLMESH_SSH", Meaning: "the program that runs a command on a host, and its options; --ssh is preferred to it"},
		pluginVariables,
	}
	rankVariables = append(slices.Clone(hostVariables),
		manual.Variable{Name: "MASTER_ADDR", Meaning: "with --rank-env: an address of the node of rank 0 that all nodes reach"},
		manual.Variable{Name: "RANK, WORLD_SIZE, LOCAL_RANK", Meaning: "with --rank-env: the place of this process in the job, as torchrun sets them; those of mpirun (OMPI_COMM_WORLD_RANK, PMI_RANK) and of srun (SLURM_PROCID) are read, too"},
		manual.Variable{Name: "NCCL_MESH_KEY", Meaning: "with --rank-env: ranks whose key differs are refused"})
	pluginVariables = manual.Variable{Name: "NCCL_MESH_*, NCCL_IB_*, NCCL_SOCKET_*", Meaning: "the variables of the plugin, where the command runs and on the hosts: ncclmesh(1) lists them"}
	libraryPath     = manual.Variable{Name: "LD_LIBRARY_PATH", Meaning: "directories in which the plugin is looked for first"}
	statusSockets   = manual.Variable{Name: "NCCL_MESH_STATUS", Meaning: "a socket of a process, or a directory of sockets, to ask instead of all processes of this node"}
)

// pages returns what the manual pages have beside the help.
func pages() map[string]manual.Page {
	return map[string]manual.Page{
		"ncclmesh":            {Status: usualStatus + " The pages of the commands say where\nit is more.", Environment: allVariables()},
		"ncclmesh bench":      {Status: usualStatus},
		"ncclmesh bench coll": {Status: usualStatus, Environment: rankVariables},
		"ncclmesh bench link": {Status: linkStatus, Environment: rankVariables},
		"ncclmesh bench nccl": {Status: usualStatus, Environment: append(slices.Clone(rankVariables), libraryPath,
			manual.Variable{Name: "VIRTUAL_ENV, CONDA_PREFIX, HOME", Meaning: "on the hosts: where Python's packages are, among which NCCL is looked for"})},
		"ncclmesh doctor": {Status: doctorStatus, Environment: append(slices.Clone(rankVariables),
			manual.Variable{Name: "HOME", Meaning: "where .nccl.conf is looked for"},
			manual.Variable{Name: "NO_COLOR, TERM", Meaning: "the output has no colours if NO_COLOR is set, or if TERM is dumb"})},
		"ncclmesh env":     {Status: envStatus, Environment: []manual.Variable{{Name: "NCCL_CONF_FILE, HOME", Meaning: "where NCCL's files of settings are"}, libraryPath, pluginVariables}},
		"ncclmesh explain": {Status: usualStatus},
		"ncclmesh metrics": {Status: usualStatus, Environment: []manual.Variable{statusSockets}},
		"ncclmesh netplan": {Status: usualStatus, Environment: []manual.Variable{
			{Name: "SSH_CONNECTION", Meaning: "the connection that is left alone"}, pluginVariables}},
		"ncclmesh relay": {Status: relayStatus, Environment: []manual.Variable{pluginVariables,
			{Name: "NOTIFY_SOCKET, JOURNAL_STREAM", Meaning: "as systemd sets them: where to report that the relay is ready, and whether the journal adds the time to log lines"}}},
		"ncclmesh report": {Status: usualStatus, Environment: []manual.Variable{{Name: "NCCL_CONF_FILE, HOME", Meaning: "where NCCL's files of settings are"}, libraryPath, pluginVariables}},
		"ncclmesh run": {Status: launchStatus, Environment: append(slices.Clone(hostVariables),
			manual.Variable{Name: "SSH_CONNECTION", Meaning: "on the first host, as sshd sets it: the address at which ssh reached it, which MASTER_ADDR is then"})},
		"ncclmesh status":  {Status: usualStatus, Environment: []manual.Variable{statusSockets}},
		"ncclmesh topo":    {Status: topoStatus, Environment: rankVariables},
		"ncclmesh up":      {Status: upStatus, Environment: append(slices.Clone(hostVariables), libraryPath)},
		"ncclmesh version": {Status: usualStatus, Environment: []manual.Variable{libraryPath}},
	}
}

// link matches a link in Markdown.
var link = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)

// allVariables lists what the plugin and the command read, in the words of docs/configuration.md.
func allVariables() []manual.Variable {
	all := []manual.Variable{hostVariables[0]}
	for _, s := range config.Settings(func(string) string { return "" }) {
		meaning := link.ReplaceAllString(s.Meaning, "$1") + " Default: " + strings.TrimSpace(s.Default+" "+s.Unit) + "."
		all = append(all, manual.Variable{Name: s.Name, Meaning: strings.ReplaceAll(meaning, "`", "")})
	}
	return all
}
