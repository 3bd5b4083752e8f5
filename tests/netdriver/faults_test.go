package netdriver

// A fault is one that the reference plugin can have.
type fault struct {
	name string
	args []string // of the driver
	want string   // in what the driver says
}

// faults are all of them.
func faults() []fault {
	ring := []string{"--work", "allreduce", "--min", "4K", "--max", "4K", "--chunk", "1544"}
	tree := []string{"--work", "tree", "--channels", "2", "--min", "64K", "--max", "64K", "--chunk", "1544"}
	doubling := []string{"--work", "doubling", "--channels", "2", "--min", "64K", "--max", "64K", "--chunk", "1544"}
	pairs := []string{"--work", "sendrecv", "--min", "64K", "--max", "64K", "--chunk", "4K"}
	soak := []string{"--work", "soak", "--max", "16K", "--messages", "30"}
	contract := []string{"--work", "contract", "--timeout", "8"}
	tuner := []string{"--work", "tuner"}
	profile := []string{"--profile", "--work", "soak", "--max", "16K", "--messages", "30"}
	cuda := func(args []string) []string { return append([]string{"--memory", "cuda"}, args...) }
	dmabuf := func(args []string) []string { return append([]string{"--memory", "dmabuf"}, args...) }
	rma := cuda([]string{"--work", "rma", "--chunk", "4K", "--messages", "20"})
	rmaStuck := append([]string{"--timeout", "2"}, rma...)
	rmaDies := cuda([]string{"--work", "rmadie", "--chunk", "4K", "--die-limit-ms", "1500"})
	dies := []string{"--work", "die", "--chunk", "16K", "--die-limit-ms", "500"}
	return []fault{
		// Contents.
		{"corrupt:20", ring, `words are wrong`},
		{"corrupt:20", pairs, `words are wrong`},
		{"corrupt:5", tree, `words are wrong`},
		{"corrupt:5", doubling, `words are wrong`},
		{"duplicate:3", tree, `words are wrong`},
		{"duplicate:3", doubling, `words are wrong`},
		{"corrupt:20", soak, `wrong from byte \d+`},
		{"shift:20", pairs, `words are wrong`},
		{"shift:20", soak, `wrong from byte 0`},
		{"tear:20", pairs, `words are wrong`},
		{"tear:20", soak, `its own bytes from offset 0 are there`},
		{"swap", pairs, `words are wrong`},
		{"swap", contract, `contract: .* wrong from byte`},
		{"duplicate:3", pairs, `words are wrong`},
		{"truncate:20", ring, `bytes were sent, test reports`},
		{"truncate:20", soak, `test reports a size of`},
		{"lose:20", append([]string{"--timeout", "2"}, pairs...), `no progress for 2 s`},
		// Memory.
		{"overrun:20", soak, `memory outside of the messages was written`},
		{"overrun", contract, `receive buffer was written outside of any message`},
		{"overrun:5", ring, `behind its \d+ was written`},
		{"underrun:20", pairs, `bytes before it were written`},
		{"misplace:5", ring, `words are wrong`},
		{"send-scribble:20", soak, `send buffer was written`},
		{"dereg-late", contract, `byte 0 was written after deregMr had returned`},
		{"dereg-gone", contract, `ended by signal 11`},
		// Completions.
		{"early", pairs, `words are wrong`},
		{"size-capacity:2", ring, `bytes were sent, test reports`},
		{"sizes-unset:20", ring, `test reports -\d+`},
		{"sizes-extra:20", ring, `test wrote sizes\[1\] of a request with 1`},
		{"done-unset", pairs, `test returned ncclSuccess and left \*done as it was`},
		{"done-two:9", ring, `test set \*done to 2`},
		// Requests.
		{"request-stale:9", ring, `isend returned ncclSuccess and left \*request as it was`},
		{"hint-kept", contract, `irecv returned ncclSuccess and left \*request as it was`},
		{"full-error", contract, `irecv returned ncclInternalError`},
		{"few-requests", contract, `irecv took 4 requests`},
		{"tags-oldest", contract, `a message for a receive behind a half-matched group: receive 0 is not done`},
		{"isend-idle", contract, `a sender that only calls isend stands still`},
		{"tags-ignored", contract, `contract: groups, .*: wrong from byte`},
		// Connections.
		{"connect-unset", ring, `connect returned ncclSuccess and left \*sendComm as it was`},
		{"connect-in-progress", ring, `connect returned ncclInProgress`},
		{"connect-blocks", append([]string{"--max-call-ms", "200"}, ring...), `connect took \d{3,}\.\d+ ms; --max-call-ms allows 200`},
		{"accept-blocks", append([]string{"--max-call-ms", "200"}, ring...), `accept took \d{3,}`},
		{"handle-long", ring, `listen wrote byte 128 of a handle of 128`},
		{"leak", contract, `descriptors after 5 connections, \d+ after 12`},
		// The device.
		{"props-unset", contract, `latency is not always written`},
		{"name-moves", contract, `name is not always written or not stable`},
		{"name-twice", contract, `devices 0 and 1 are both named self0`},
		{"devices-flap:9", contract, `2 devices first, then 1`},
		// Memory registration and the process.
		{"dereg-null", contract, `deregMr\(sendComm, NULL\) returned ncclInvalidArgument`},
		{"close-null", contract, `closeSend of NULL returned ncclInvalidArgument`},
		{"close-twice", contract, `closeSend of what is closed returned ncclInvalidArgument`},
		{"closed-works", contract, `isend of NULL returned ncclSuccess`},
		{"finalize-null", contract, `finalize\(NULL\) returned ncclInternalError`},
		{"reinit:9", contract, `init failed: ncclInternalError`},
		{"env-early", contract, `NCCL_IB_TIMEOUT=garbage: init accepted it`},
		{"fork-open", contract, `in a forked child devices does not return ncclSystemError`},
		// A GPU's memory.
		{"ptr-changes:4", contract, `ptrSupport is not always written or not stable`},
		{"ptr-version", contract, `ptrSupport is 1 in v12 and 3 in v8`},
		{"reg-any", contract, `regMr of CUDA memory, which getProperties does not offer, returned ncclSuccess`},
		{"gpu-touch", cuda(soak), `ended by signal 11`},
		{"flush-none", cuda(soak), `wrong from byte 0`},
		{"flush-none", cuda(contract), `wrong from byte 0`},
		{"flush-none", dmabuf(pairs), `words are wrong`},
		{"flush-one", dmabuf(soak), `message [1-7] of [2-8] .*: wrong from byte 0`},
		{"flush-one", dmabuf(contract), `contract: groups, .*: wrong from byte 0`},
		{"flush-early:5", cuda(ring), `words are wrong`},
		{"flush-sizes", cuda(pairs), `ended by signal 11`},
		{"dmabuf-offset", dmabuf(contract), `contract: memory that starts and ends anywhere: .* wrong from byte`},
		// One-sided communication.
		{"rma-type", rma, `netDeviceType is 0; 2 makes NCCL use it for GIN`},
		{"rma-recvs", rma, `maxRecvs is 3; NCCL needs a power of two`},
		{"rma-props", rma, `the properties differ from those of the network`},
		{"rma-offered", []string{"--work", "rma", "--rma", "none"}, `the RMA interface has 2 devices; none is wanted`},
		{"rma-context", rma, `host RMA: connect returned ncclInternalError`},
		{"rma-mhandle", rma, `regMrSym returned ncclSuccess and NULL`},
		{"rma-request:20", rma, `iput(Signal)? returned ncclSuccess and NULL, which NCCL uses all the same`},
		{"rma-done", rma, `RMA test returned ncclSuccess and did not write \*done`},
		{"rma-self", rma, `to rank [01] returned ncclInvalidUsage`},
		{"rma-handles", rma, `iput of an operation to rank [01] returned ncclInvalidArgument`},
		{"rma-signal-early", rma, `sees the signal of message \d+ of rank \d, context \d, and byte \d+ of its \d+ is wrong`},
		{"rma-signal-lost:20", rmaStuck, `no progress for 2 s`},
		{"rma-signal-twice:20", rma, `(is wrong|have added|has acknowledged)`},
		{"rma-add:3", rmaStuck, `(no progress for 2 s|have added)`},
		{"rma-overrun", rma, `bytes, and one behind them was written`},
		{"rma-get-none", rma, `that were got from offset \d+ of rank \d is wrong`},
		{"rma-dereg", rma, `ended by signal 11`},
		{"rma-query-always", rma, `queryLastError reports an error, and there was none`},
		{"rma-query-never", rmaDies, `queryLastError reports no error after the death of rank 1`},
		{"rma-error-hidden", rmaDies, `(went on without an error for 1500 ms|that were got from offset)`},
		{"rma-error-kind", rmaDies, `returned ncclSystemError \(2\), ncclRemoteError \(6\) is wanted`},
		// The tuner.
		{"tuner-init", tuner, `tuner init returned ncclInternalError`},
		{"tuner-error:5", tuner, `getCollInfo returned ncclSystemError \(2\), and NCCL would abort`},
		{"tuner-unset", tuner, `an output is as it was`},
		{"tuner-many:9", tuner, `65 channels`},
		{"tuner-gather", tuner, `channels for an all-gather, and the communicator may have fewer`},
		{"tuner-revives", tuner, `is not possible, and became 0`},
		{"tuner-nothing-left", tuner, `nothing that was possible is left`},
		{"tuner-width", tuner, `a cell of an algorithm that NCCL lacks was written`},
		{"tuner-behind", tuner, `memory behind the table of costs was written`},
		{"tuner-differs", tuner, `another rank has other answers`},
		{"tuner-lossy", tuner, `a ring is chosen where a tree is possible`},
		{"tuner-foreign", tuner, `8 ranks on 2 nodes: it interferes`},
		{"tuner-alone", tuner, `keeps out without the network: it interferes`},
		{"tuner-shared", tuner, `a communicator beside others has other answers`},
		{"tuner-fork", tuner, `in a forked child init does not return ncclSystemError`},
		{"tuner-chunk", tuner, `the chunk of \d+ became`},
		{"tuner-slow", tuner, `getCollInfo takes \d+\.\d times a look-up`},

		// The profiler.
		{"profile-none:20", profile, `profiler: there was no event of a message`},
		{"profile-twice:20", profile, `profiler: (the events of a message of \d+ bytes tell of|2 events of an empty message)`},
		{"profile-length:20", profile, `profiler: the events of a message of \d+ bytes tell of`},
		{"profile-open:20", profile, `profiler: event 0 of a message is under way, and test says that it is done`},
		{"profile-stop:20", profile, `profiler: an event stops that is not under way`},
		{"profile-unmade", profile, `profiler: event \(nil\) stops, which is none`},
		{"profile-late:20", profile, `profiler: an event of a message starts after test has said that it is done`},
		{"profile-isend:20", profile, `profiler: called outside of test`},
		{"profile-old", append([]string{"--api", "v10"}, profile...), `profiler: NCCL takes no events in test before interface 11`},
		{"profile-preset:20", profile, `profiler: the handle of an event is 0x[0-9a-f]+ before it starts`},
		{"profile-step:20", profile, `profiler: an event of step \(nil\), which is none`},
		{"profile-many", profile, `profiler: more than 8 events of a message`},
		{"profile-kind:20", profile, `profiler: nothing is known of network events of kind 0x1`},
		{"profile-descriptor:20", profile, `profiler: event type 1, and descriptor -1 is not a socket`},
		{"profile-operation:20", profile, `profiler: operation [01] of a`},

		// A dead peer.
		{"remote-as-system", dies, `returned ncclSystemError \(2\), ncclRemoteError \(6\) is wanted`},
		{"remote-as-system", contract, `ncclSystemError \(2\) when the peer had gone`},
		{"end-refuses", contract, `isend that was granted before the receiver closed returned ncclRemoteError`},
		{"remote-silent", dies, `went on without an error for 500 ms after its death`},
		{"remote-slow", dies, `went on without an error for 500 ms after its death`},
		{"fork-fds", append([]string{"--orphans", "1"}, dies...), `went on without an error for 500 ms`},
	}
}
