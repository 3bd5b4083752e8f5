/* Loading: dlopen and symbols as NCCL does it, and each version's vtable into struct net. */
#include "plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TAKE(member) (net->member = table->member)

/* The members whose signature differs between versions: the version in which each got the one that it has, and the members that came later. */
#define BINDER(version, INIT, PROPS, LISTEN, CONNECT, ACCEPT, REG_MR, ISEND, IRECV, ...) \
	static void bind_v##version(struct net *net, const ncclNet_v##version##_t *table) \
	{ \
		net->init_##INIT = table->init; \
		net->props_##PROPS = table->getProperties; \
		net->listen_##LISTEN = table->listen; \
		net->connect_##CONNECT = table->connect; \
		net->accept_##ACCEPT = table->accept; \
		net->regMr_##REG_MR = table->regMr; \
		net->isend_##ISEND = table->isend; \
		net->irecv_##IRECV = table->irecv; \
		__VA_ARGS__; \
	}
BINDER(5, v5, v5, v5, v5, v5, v5, v5, v5, (void)0)
BINDER(6, v5, v5, v5, v5, v5, v5, v5, v5, TAKE(regMrDmaBuf))
BINDER(7, v5, v7, v5, v7, v7, v5, v5, v5, TAKE(regMrDmaBuf), TAKE(irecvConsumed))
BINDER(8, v5, v8, v5, v7, v7, v8, v5, v5, TAKE(regMrDmaBuf), TAKE(irecvConsumed))
BINDER(9, v5, v9, v5, v7, v7, v8, v9, v9, TAKE(regMrDmaBuf), TAKE(irecvConsumed))
BINDER(10, v10, v9, v5, v10, v7, v8, v10, v10, TAKE(regMrDmaBuf), TAKE(irecvConsumed))
BINDER(11, v11, v11, v11, v11, v7, v8, v10, v10, TAKE(regMrDmaBuf), TAKE(irecvConsumed), TAKE(finalize), TAKE(setNetAttr))
BINDER(12, v11, v12, v11, v11, v7, v8, v10, v10, TAKE(regMrDmaBuf), TAKE(irecvConsumed), TAKE(finalize), TAKE(setNetAttr))

/* The members whose signature is the same in every version. */
#define BIND(version) \
	case version: { \
		ncclNet_v##version##_t *table = vtable; \
		net->name_slot = &table->name; \
		TAKE(devices); \
		TAKE(deregMr); \
		TAKE(iflush); \
		TAKE(test); \
		TAKE(closeSend); \
		TAKE(closeRecv); \
		TAKE(closeListen); \
		bind_v##version(net, table); \
		break; \
	}

void net_bind(struct net *net, int version, void *vtable)
{
	void *library = net->library;

	memset(net, 0, sizeof *net);
	net->library = library;
	net->version = version;
	switch (version) {
		BIND(5)
		BIND(6)
		BIND(7)
		BIND(8)
		BIND(9)
		BIND(10)
		BIND(11)
		BIND(12)
	}
	net->name = *net->name_slot;
}

const char *net_missing(const struct net *net)
{
	const struct {
		bool missing;
		const char *name;
	} members[] = {
		{!net->name, "name"},
		{!net->init_v5 && !net->init_v10 && !net->init_v11, "init"},
		{!net->devices, "devices"},
		{!net->props_v5 && !net->props_v7 && !net->props_v8 && !net->props_v9 && !net->props_v11 && !net->props_v12, "getProperties"},
		{!net->listen_v5 && !net->listen_v11, "listen"},
		{!net->connect_v5 && !net->connect_v7 && !net->connect_v10 && !net->connect_v11, "connect"},
		{!net->accept_v5 && !net->accept_v7, "accept"},
		{!net->regMr_v5 && !net->regMr_v8, "regMr"},
		{!net->deregMr, "deregMr"},
		{!net->isend_v5 && !net->isend_v9 && !net->isend_v10, "isend"},
		{!net->irecv_v5 && !net->irecv_v9 && !net->irecv_v10, "irecv"},
		{!net->iflush, "iflush"},
		{!net->test, "test"},
		{!net->closeSend, "closeSend"},
		{!net->closeRecv, "closeRecv"},
		{!net->closeListen, "closeListen"},
		{net->version >= 11 && !net->finalize, "finalize"},
	};

	for (size_t i = 0; i < sizeof members / sizeof *members; i++)
		if (members[i].missing)
			return members[i].name;
	return NULL;
}

bool net_load(struct net *net, const char *path, int version, char *error, size_t error_size)
{
	int newest = version ? version : API_NEWEST, oldest = version ? version : API_OLDEST;
	char symbol[32];
	void *table;

	memset(net, 0, sizeof *net);
	net->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!net->library) {
		snprintf(error, error_size, "cannot load the plugin: %s", dlerror());
		return false;
	}
	for (int v = newest; v >= oldest; v--) {
		snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", v);
		if ((table = dlsym(net->library, symbol))) {
			net_bind(net, v, table);
			return true;
		}
	}
	snprintf(error, error_size, "%s exports none of ncclNetPlugin_v%d to v%d", path, newest, oldest);
	net_unload(net);
	return false;
}

bool net_other(const struct net *net, struct net *other, int version)
{
	char symbol[32];
	void *table;

	snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
	table = dlsym(net->library, symbol);
	if (!table)
		return false;
	*other = (struct net){.library = net->library};
	net_bind(other, version, table);
	return true;
}

void net_unload(struct net *net)
{
	if (net->library)
		dlclose(net->library);
	memset(net, 0, sizeof *net);
}
