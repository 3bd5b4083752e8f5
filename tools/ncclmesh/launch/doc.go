// Package launch starts one command on several hosts, as one job: with the variables by which ranks find each other and
// NCCL finds the plugin.
//
// On each host an agent ([Handlers]) says that it is ready and what it has, and starts nothing before all are: so a job
// starts everywhere or nowhere. After that it hands on what the processes write, line by line, and signals them as it is told.
// Processes are a group of their own, which ends with the agent, whatever becomes of who asked.
//
//	launcher                          agent
//	{do: run, with: [Order]} ─────►   looks for the plugin, finds a port
//	                         ◄─────   [Report]{Ready}
//	[Word]{Start}            ─────►   starts the processes
//	                         ◄─────   [Report]{Line}, any number, and {} for a sign of life
//	[Word]{Signal}           ─────►   any number
//	                         ◄─────   [Report]{Exit} for each process
package launch
