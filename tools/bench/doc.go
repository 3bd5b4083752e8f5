// Command bench measures the plugin against a limit that is measured beside it:
// a C loop which posts the same writes on the same library, over the same
// modelled link, at the same depth, or one that makes the calls of NCCL's own
// transport (tests/bench). Both run as pairs of processes
// on two nodes of a fabric of tests/fakeverbs. Beside TCP lanes stand plain sockets
// in C, and iperf3 with as many streams, over the veth pair of the same two nodes.
// One-sided transfers of libncclmesh have figures too, whose names begin with put:
// their C loop posts RDMA WRITEs as ib_write_bw and ib_write_lat do.
// With a base the plugin of another commit takes the place of the limit.
//
// The machine may be shared, and what it gives changes by a factor of two within a
// second. So
//   - every rank stays on a processor: two for two where time between processors
//     counts, the same one where the cost of a message does. Cost is processor time
//     of both ranks, which run one at a time and never wait actively;
//   - the two that are compared run at once and measure in turn, some 25 ms each. A
//     pair is the median of such slices of one start of both; what knows no slices,
//     as iperf3, runs in turn as a whole;
//   - the ratio is the median of the pairs' ratios, and the noise how far that may be
//     off, as the pairs differ. A difference from a base is one beyond its noise, and
//     what is worse has to be so twice.
//
// Modelled rates stay at or below an eighth of what the machine copies, so that
// the model and not the processor is the bottleneck; on a slow machine all of
// them are halved until they do.
//
// It prints a line for each figure as soon as it is known,
//
//	bench name=… value=… unit=… limit=… ratio=… noise=…
//	bench name=… value=… unit=… base=… ratio=… noise=… verdict=better|same|worse
//
// then a table for people, keeps everything as JSON, and draws bandwidth and
// latency over the size of a message, and what the tuner's model makes of its
// choices and of NCCL's own.
package main
