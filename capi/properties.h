/* How the properties of a device get into the structure of each version of the interface. */
#ifndef MESH_PROPERTIES_H
#define MESH_PROPERTIES_H

/*
 * NCCL passes an uninitialised structure, so every member is assigned. The versions order
 * the members differently; their meanings are the same.
 */
#define PROPERTIES_V5(to, from)                                                                                      \
	do {                                                                                                         \
		(to)->name = (from).name;                                                                            \
		(to)->pciPath = (from).pciPath;                                                                      \
		(to)->guid = (from).guid;                                                                            \
		(to)->ptrSupport = (from).ptrSupport;                                                                \
		(to)->speed = (from).speed;                                                                          \
		(to)->port = (from).port;                                                                            \
		(to)->latency = (from).latency;                                                                      \
		(to)->maxComms = (from).maxComms;                                                                    \
		(to)->maxRecvs = (from).maxRecvs;                                                                    \
	} while (0)

#define PROPERTIES_V7(to, from)                                                                                      \
	do {                                                                                                         \
		PROPERTIES_V5(to, from);                                                                             \
		(to)->netDeviceType = (from).netDeviceType;                                                          \
		(to)->netDeviceVersion = (from).netDeviceVersion;                                                    \
	} while (0)

#define PROPERTIES_V8(to, from)                                                                                      \
	do {                                                                                                         \
		PROPERTIES_V7(to, from);                                                                             \
		(to)->regIsGlobal = (from).regIsGlobal;                                                              \
	} while (0)

#define PROPERTIES_V9(to, from, dev)                                                                                 \
	do {                                                                                                         \
		PROPERTIES_V8(to, from);                                                                             \
		(to)->forceFlush = (from).forceFlush;                                                                \
		(to)->vProps.ndevs = 1;                                                                              \
		for (size_t i = 0; i < sizeof((to)->vProps.devs) / sizeof((to)->vProps.devs[0]); i++)               \
			(to)->vProps.devs[i] = dev;                                                                  \
		(to)->maxP2pBytes = (from).maxP2pBytes;                                                              \
		(to)->maxCollBytes = (from).maxCollBytes;                                                            \
	} while (0)

#define PROPERTIES_V11(to, from, dev)                                                                                \
	do {                                                                                                         \
		PROPERTIES_V9(to, from, dev);                                                                        \
		(to)->maxMultiRequestSize = (from).maxMultiRequestSize;                                              \
	} while (0)

#define PROPERTIES_V12(to, from, dev)                                                                                \
	do {                                                                                                         \
		PROPERTIES_V11(to, from, dev);                                                                       \
		(to)->railId = (from).railId;                                                                        \
		(to)->planeId = (from).planeId;                                                                      \
	} while (0)

#endif
