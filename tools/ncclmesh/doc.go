// Command ncclmesh is for people who run a mesh: what the plugin does inside a job, from
// outside it.
//
//	ncclmesh agent     does on a node what another node's command asks
//	ncclmesh bench     measures cables and collectives between nodes
//	ncclmesh doctor    says what is wrong with nodes and cables, and explain what to do about it
//	ncclmesh env       says what to set so that NCCL uses the plugin, and what is in its way
//	ncclmesh metrics   gives the counters of running jobs to Prometheus
//	ncclmesh netplan   writes addresses for the cables of this node
//	ncclmesh relay     carries for other nodes where no rank runs
//	ncclmesh report    writes an archive for a bug report, without secrets
//	ncclmesh run       starts a command on several hosts, as one job
//	ncclmesh status    shows the cables, traffic and failures of running jobs
//	ncclmesh topo      proves every cable between nodes, and draws them
//	ncclmesh version   says which build this is, and which plugin NCCL would find
//
// It reads the plugin's environment variables (package config). The status is 2 where it
// was called wrongly or is configured wrongly, and 1 where something else has failed;
// that of run is the status of what it has run.
package main
