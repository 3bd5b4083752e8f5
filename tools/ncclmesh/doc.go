// Command ncclmesh is for people who run a mesh: what the plugin does inside a job, from
// outside it.
//
//	ncclmesh topo    proves every cable between nodes, and draws them
//	ncclmesh bench   measures cables and collectives between nodes
//	ncclmesh relay   carries for other nodes where no rank runs
//	ncclmesh agent   does on a node what another node's command asks
//
// It reads the plugin's environment variables (package config). The status is 2 where it
// was called wrongly or is configured wrongly, and 1 where something else has failed.
package main
