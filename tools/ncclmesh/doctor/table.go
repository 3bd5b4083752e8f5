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
	{ID: "port-down", judge: portDown},
	{ID: "port-enslaved", judge: each(portEnslaved), After: []string{"port-down"}},
	{ID: "port-flapping", judge: each(portFlapping)},
	{ID: "port-shaped", judge: each(portShaped), After: []string{"port-down"}},
	{ID: "pcie-fatal", judge: each(pcieFatal)},
	{ID: "pcie-narrow", judge: each(pcieNarrow)},
	{ID: "speed-low", judge: speedLow, After: []string{"port-down"}},
	{ID: "mst-loaded", judge: each(mstLoaded)},

	// Memory and other limits.
	{ID: "memlock", judge: each(memlock), After: []string{"uverbs-denied"}},
	{ID: "regmr-enomem", judge: each(regmrENOMEM), After: []string{"memlock", "uverbs-denied"}},
	{ID: "mem-low", judge: each(memLow)},
	{ID: "shm-small", judge: each(shmSmall)},
	{ID: "files-low", judge: each(filesLow)},

	// Addresses.
	{ID: "addr-none", judge: addrNone, After: []string{"port-down", "port-enslaved"}},
	{ID: "addr-volatile", judge: each(addrVolatile)},
	{ID: "addr-owner-clash", judge: each(addrOwnerClash)},
	{ID: "addr-duplicate", judge: addrDuplicate},
	{ID: "subnet-shared", judge: each(subnetShared)},
	{ID: "subnet-overlap", judge: each(subnetOverlap)},
	{ID: "route-wrong", judge: routeWrong, Several: true, After: []string{"ssh-failed", "port-down", "addr-duplicate", "subnet-overlap"}},
	{ID: "neighbour-wrong", judge: neighbourWrong, Several: true, After: []string{"ssh-failed", "addr-duplicate"}},
	{ID: "mtu-small", judge: each(mtuSmall), After: []string{"port-down"}},
	{ID: "mtu-mismatch", judge: mtuMismatch, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down"}},
	{ID: "gid-none", judge: each(gidNone), After: []string{"port-down", "port-enslaved"}},
	{ID: "gid-pinned-empty", judge: each(gidPinnedEmpty)},
	{ID: "gid-pinned", judge: each(gidPinned), After: []string{"port-down", "gid-none"}},

	// The bootstrap.
	{ID: "bootstrap-iface", judge: each(bootstrapIface)},
	{ID: "bootstrap-wifi", judge: each(bootstrapWifi), After: []string{"bootstrap-iface"}},
	{ID: "bootstrap-reach", judge: bootstrapReach, Several: true, After: []string{"bootstrap-iface"}},

	// Cables.
	{ID: "port-left-out", judge: portLeftOut, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "port-enslaved"}},
	{ID: "plugin-fails", judge: pluginFails, After: []string{"ssh-failed", "env-invalid", "files-low", "bootstrap-iface", "port-left-out"}},
	{ID: "cable-loop", judge: each(cableLoop), After: []string{"port-down"}},
	{ID: "node-silent", judge: nodeSilent, Several: true, After: []string{"ssh-failed", "env-invalid", "port-left-out", "plugin-fails", "cable-loop"}},
	{ID: "cable-dead", judge: cableDead, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "port-enslaved", "port-left-out", "plugin-fails", "addr-duplicate", "route-wrong", "neighbour-wrong", "cable-loop", "node-silent"}},
	{ID: "tcp-filtered", judge: tcpFiltered, Several: true, After: []string{"ssh-failed", "bootstrap-reach", "env-invalid", "port-down", "port-enslaved", "port-left-out", "plugin-fails", "addr-duplicate", "route-wrong", "neighbour-wrong"}},
	{ID: "cabling-differs", judge: cablingDiffers, After: []string{"ssh-failed", "env-invalid", "plugin-fails", "port-down", "cable-loop", "node-silent", "cable-dead"}},
	{ID: "cabling-same-port", judge: cablingSamePort, Several: true, After: []string{"ssh-failed", "env-invalid"}},
	{ID: "rdma-one-end", judge: rdmaOneEnd, Several: true, After: []string{"ssh-failed", "env-invalid", "rdma-absent", "nic-unplugged"}},
	{ID: "roce-filtered", judge: roceFiltered, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "port-enslaved", "port-left-out", "plugin-fails", "uverbs-denied", "memlock", "regmr-enomem", "gid-none", "gid-pinned", "route-wrong", "neighbour-wrong"}},
	{ID: "half-unused", judge: halfUnused, Several: true, After: []string{"ssh-failed", "env-invalid", "port-down", "port-enslaved", "port-left-out", "plugin-fails", "uverbs-denied", "roce-filtered", "gid-none", "gid-pinned", "cable-loop", "cable-dead"}},
	{ID: "no-common-cable", judge: noCommonCable, Several: true, After: []string{"ssh-failed", "env-invalid", "plugin-fails"}},
	{ID: "cable-slow", judge: cableSlow, After: []string{"port-down"}},
	{ID: "cable-slow-both-ways", judge: cableSlowBothWays, After: []string{"port-down"}},
	{ID: "half-idle", judge: each(halfIdle), After: []string{"port-down", "port-left-out", "half-unused"}},
	{ID: "counters-rising", judge: each(countersRising)},

	// What a job is told.
	{ID: "env-recipe", judge: envRecipe},
	{ID: "nccl-conf", judge: each(ncclConf)},
	{ID: "nccl-preload", judge: each(ncclPreload)},
	{ID: "nccl-version", judge: ncclVersion},
	{ID: "plugin-disabled", judge: each(pluginDisabled)},
	{ID: "plugin-other", judge: each(pluginOther), After: []string{"plugin-disabled"}},
	{ID: "plugin-unloadable", judge: each(pluginUnloadable), After: []string{"plugin-disabled", "plugin-other"}},
	{ID: "debug-file", judge: each(debugFile)},
	{ID: "settings-differ", judge: settingsDiffer, Several: true, After: []string{"ssh-failed"}},

	// What frameworks tell other nodes.
	{ID: "host-ip", judge: each(hostIP)},
	{ID: "name-loopback", judge: each(nameLoopback), Several: true},

	// Nodes beside each other.
	{ID: "machine-id-cloned", judge: machineIDCloned, Several: true},
	{ID: "clock-differs", judge: clockDiffers, Several: true},
	{ID: "versions-differ", judge: versionsDiffer, Several: true},
}
