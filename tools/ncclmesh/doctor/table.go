package doctor

// Checks are all there are, causes before their consequences.
var Checks = []Check{
	{ID: "ssh-failed", judge: sshFailed},
	{ID: "env-invalid", judge: each(envInvalid)},

	// The adapter.
	{ID: "rdma-absent", judge: each(rdmaAbsent)},
	{ID: "nic-unplugged", judge: each(nicUnplugged), After: []string{"rdma-absent"}},
	{ID: "verbs-missing", judge: each(verbsMissing)},
	{ID: "uverbs-denied", judge: each(uverbsDenied), After: []string{"verbs-missing"}},
	{ID: "port-down", judge: each(portDown)},
	{ID: "pcie-fatal", judge: each(pcieFatal)},
	{ID: "pcie-narrow", judge: each(pcieNarrow), After: []string{"pcie-fatal"}},
	{ID: "speed-low", judge: speedLow, After: []string{"port-down"}},
	{ID: "mst-loaded", judge: each(mstLoaded)},

	// Memory.
	{ID: "memlock", judge: each(memlock), After: []string{"uverbs-denied"}},
	{ID: "regmr-enomem", judge: each(regmrENOMEM), After: []string{"memlock", "uverbs-denied"}},
	{ID: "mem-low", judge: each(memLow)},

	// Addresses.
	{ID: "addr-none", judge: each(addrNone), After: []string{"port-down"}},
	{ID: "addr-volatile", judge: each(addrVolatile)},
	{ID: "addr-owner-clash", judge: each(addrOwnerClash)},
	{ID: "addr-duplicate", judge: addrDuplicate},
	{ID: "subnet-shared", judge: each(subnetShared)},
	{ID: "subnet-overlap", judge: each(subnetOverlap)},
	{ID: "mtu-small", judge: each(mtuSmall), After: []string{"port-down"}},
	{ID: "mtu-mismatch", judge: mtuMismatch, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down"}},
	{ID: "gid-none", judge: each(gidNone), After: []string{"port-down"}},
	{ID: "gid-pinned-empty", judge: each(gidPinnedEmpty)},
	{ID: "gid-pinned", judge: each(gidPinned), After: []string{"port-down", "gid-none"}},

	// Cables.
	{ID: "port-left-out", judge: portLeftOut, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down"}},
	{ID: "cable-loop", judge: each(cableLoop), After: []string{"port-down"}},
	{ID: "cabling-differs", judge: cablingDiffers, After: []string{"ssh-failed", "env-invalid", "port-down", "cable-loop"}},
	{ID: "cabling-same-port", judge: cablingSamePort, Several: true, After: []string{"ssh-failed", "env-invalid"}},
	{ID: "cable-dead", judge: cableDead, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "port-left-out", "addr-duplicate", "cable-loop", "cabling-differs"}},
	{ID: "rdma-one-end", judge: rdmaOneEnd, Several: true, After: []string{"ssh-failed", "env-invalid", "rdma-absent", "nic-unplugged"}},
	{ID: "roce-filtered", judge: roceFiltered, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "port-left-out", "uverbs-denied", "memlock", "regmr-enomem", "gid-none", "gid-pinned"}},
	{ID: "half-unused", judge: halfUnused, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "port-left-out", "uverbs-denied", "roce-filtered", "gid-none", "gid-pinned", "cable-loop", "cable-dead"}},
	{ID: "no-common-cable", judge: noCommonCable, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "cable-loop", "cabling-differs", "cable-dead"}},
	{ID: "cable-slow", judge: cableSlow, After: []string{"port-down", "pcie-narrow", "speed-low", "mtu-small"}},
	{ID: "cable-slow-both-ways", judge: cableSlowBothWays, After: []string{"port-down", "pcie-narrow", "speed-low", "cable-slow"}},
	{ID: "half-idle", judge: each(halfIdle), After: []string{"port-down", "port-left-out", "half-unused"}},
	{ID: "counters-rising", judge: each(countersRising), After: []string{"mtu-mismatch"}},

	// What a job is told.
	{ID: "env-recipe", judge: each(envRecipe)},
	{ID: "nccl-conf", judge: each(ncclConf)},
	{ID: "nccl-preload", judge: each(ncclPreload)},
	{ID: "nccl-version", judge: ncclVersion, After: []string{"nccl-preload"}},
	{ID: "plugin-disabled", judge: each(pluginDisabled)},
	{ID: "plugin-other", judge: each(pluginOther), After: []string{"plugin-disabled"}},
	{ID: "debug-file", judge: each(debugFile)},

	// The bootstrap.
	{ID: "bootstrap-iface", judge: each(bootstrapIface)},
	{ID: "bootstrap-wifi", judge: each(bootstrapWifi), After: []string{"bootstrap-iface"}},
	{ID: "bootstrap-reach", judge: bootstrapReach, Several: true, After: []string{"bootstrap-iface"}},

	// Nodes beside each other.
	{ID: "machine-id-cloned", judge: machineIDCloned, Several: true},
	{ID: "versions-differ", judge: versionsDiffer, Several: true},
}
