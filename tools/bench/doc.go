// Command bench measures the plugin against a limit that is measured beside it:
// a C loop which posts the same writes on the same library, over the same
// modelled link, at the same depth (tests/bench). Both run as pairs of processes
// on two nodes of a fabric of tests/fakeverbs, in turn, several times; what is
// reported are medians. The ratio is the median of the rounds' ratios, so that a
// machine which is slower for a while is slower for both.
//
// Beside TCP lanes stand plain sockets in C, for latency, and iperf3 with as many
// streams, over the veth pair of the same two nodes.
//
// Modelled rates stay at or below an eighth of what the machine copies, so that
// the model and not the processor is the bottleneck; on a slow machine all of
// them are halved until they do.
//
// It prints a table for people and a line for each figure,
//
//	bench name=… value=… unit=… limit=… ratio=…
//
// keeps everything as JSON, and draws bandwidth and latency over the size of a
// message.
package main
