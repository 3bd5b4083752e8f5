/*
 * A loaded plugin behind one neutral interface. The net_* functions call it as NCCL does and
 * check on the spot what NCCL relies on: every output argument holds garbage beforehand and
 * must be written, nothing beside it may be. Every call is timed.
 */
#ifndef NETDRIVER_PLUGIN_H
#define NETDRIVER_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

enum { API_OLDEST = 5, API_NEWEST = 12, MAX_DEVS_PER_NIC = 8 };

/* One member per signature; a version fills those that it has. */
struct net {
	void *library;
	int version;
	const char *name;
	const char **name_slot; /* the vtable's own word, to see that it stays */
	netInit_v5 *init_v5;
	netInit_v10 *init_v10;
	netInit_v11 *init_v11;
	netDevices *devices;
	netGetProperties_v5 *props_v5;
	netGetProperties_v7 *props_v7;
	netGetProperties_v8 *props_v8;
	netGetProperties_v9 *props_v9;
	netGetProperties_v11 *props_v11;
	netGetProperties_v12 *props_v12;
	netListen_v5 *listen_v5;
	netListen_v11 *listen_v11;
	netConnect_v5 *connect_v5;
	netConnect_v7 *connect_v7;
	netConnect_v10 *connect_v10;
	netConnect_v11 *connect_v11;
	netAccept_v5 *accept_v5;
	netAccept_v7 *accept_v7;
	netRegMr_v5 *regMr_v5;
	netRegMr_v8 *regMr_v8;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v5 *isend_v5;
	netIsend_v9 *isend_v9;
	netIsend_v10 *isend_v10;
	netIrecv_v5 *irecv_v5;
	netIrecv_v9 *irecv_v9;
	netIrecv_v10 *irecv_v10;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend, *closeRecv, *closeListen;
	netIrecvConsumed *irecvConsumed;
	netFinalize *finalize;
	netSetNetAttr *setNetAttr;
};

/* The newest version's properties, with what NCCL assumes where an older one has no such field. */
struct net_props {
	const char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal, forceFlush, speed, port;
	float latency;
	int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
	int ndevs, devs[MAX_DEVS_PER_NIC];
	size_t maxP2pBytes, maxCollBytes;
	int maxMultiRequestSize;
	int railId, planeId;
};

/*
 * net_load opens the library and takes the named version, or with version 0 the newest that it
 * exports. False, with the reason in error, when that cannot be.
 */
bool net_load(struct net *net, const char *path, int version, char *error, size_t error_size);
void net_unload(struct net *net);

/* net_other fills *other from another version of the same library; false: it has none such. */
bool net_other(const struct net *net, struct net *other, int version);

/* net_missing names the first required member that is NULL, or is NULL itself. */
const char *net_missing(const struct net *net);

/* net_bind fills *net from the vtable of that version. */
void net_bind(struct net *net, int version, void *table);

ncclResult_t net_init(struct net *net, void **ctx, uint64_t commId, int trafficClass);
ncclResult_t net_finalize(struct net *net, void *ctx);
ncclResult_t net_devices(struct net *net, int *ndev);
/* net_properties fills the plugin's struct with the given byte before the call. */
ncclResult_t net_properties(struct net *net, int dev, unsigned char fill, struct net_props *props);
ncclResult_t net_listen(struct net *net, void *ctx, int dev, void *handle, void **listenComm);
/* config reaches a version 10 plugin only, and may be NULL. */
ncclResult_t net_connect(struct net *net, void *ctx, int dev, ncclNetCommConfig_t *config, void *handle,
                         void **sendComm);
ncclResult_t net_accept(struct net *net, void *listenComm, void **recvComm);
ncclResult_t net_reg(struct net *net, void *comm, void *data, size_t size, int type, void **mhandle);
ncclResult_t net_reg_dmabuf(struct net *net, void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                            void **mhandle);
ncclResult_t net_dereg(struct net *net, void *comm, void *mhandle);
ncclResult_t net_isend(struct net *net, void *sendComm, void *data, size_t size, int tag, void *mhandle,
                       void *phandle, void **request);
/* optional: the slot holds NCCL_NET_OPTIONAL_RECV_COMPLETION beforehand, from version 9 on. */
ncclResult_t net_irecv(struct net *net, void *recvComm, int n, void **data, size_t *sizes, int *tags,
                       void **mhandles, void **phandles, bool optional, void **request);
ncclResult_t net_iflush(struct net *net, void *recvComm, int n, void **data, int *sizes, void **mhandles,
                        void **request);
/* sizes: NULL, or room for n; n is the group's size for a receive and 1 for a send. */
ncclResult_t net_test(struct net *net, void *request, int *done, int n, int *sizes);
ncclResult_t net_close_send(struct net *net, void *sendComm);
ncclResult_t net_close_recv(struct net *net, void *recvComm);
ncclResult_t net_close_listen(struct net *net, void *listenComm);
/* net_attributes gives the hints that NCCL gives before each connect and accept. */
void net_attributes(struct net *net, void *ctx);

const char *result_name(ncclResult_t result);

/* net_garbage is in every pointer slot before a call: no plugin returns it, touching it faults. */
void *net_garbage(void);

/* Call times. */
enum net_call {
	NET_INIT, NET_FINALIZE, NET_DEVICES, NET_PROPERTIES, NET_LISTEN, NET_CONNECT, NET_ACCEPT, NET_REG, NET_REG_DMABUF,
	NET_DEREG, NET_ISEND, NET_IRECV, NET_IFLUSH, NET_TEST, NET_CLOSE_SEND, NET_CLOSE_RECV,
	NET_CLOSE_LISTEN, NET_CALLS,
};

struct call_time {
	uint64_t calls, longest_ns;
	int inside; /* threads in the call right now */
};

const char *call_name(enum net_call call);
struct call_time call_time(enum net_call call);

/* call_may_wait: the calls that NCCL's threads can afford to wait for. */
bool call_may_wait(enum net_call call);

#endif
