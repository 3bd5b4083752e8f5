/* Loading: dlopen and symbols as NCCL does it, and each version's vtable into struct net. */
#include "plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TAKE(member) (net->member = table->member)

static void bind_v5(struct net *net, const ncclNet_v5_t *table)
{
	net->init_v5 = table->init;
	net->props_v5 = table->getProperties;
	net->listen_v5 = table->listen;
	net->connect_v5 = table->connect;
	net->accept_v5 = table->accept;
	net->regMr_v5 = table->regMr;
	net->isend_v5 = table->isend;
	net->irecv_v5 = table->irecv;
}

static void bind_v6(struct net *net, const ncclNet_v6_t *table)
{
	net->init_v5 = table->init;
	net->props_v5 = table->getProperties;
	net->listen_v5 = table->listen;
	net->connect_v5 = table->connect;
	net->accept_v5 = table->accept;
	net->regMr_v5 = table->regMr;
	net->isend_v5 = table->isend;
	net->irecv_v5 = table->irecv;
	TAKE(regMrDmaBuf);
}

static void bind_v7(struct net *net, const ncclNet_v7_t *table)
{
	net->init_v5 = table->init;
	net->props_v7 = table->getProperties;
	net->listen_v5 = table->listen;
	net->connect_v7 = table->connect;
	net->accept_v7 = table->accept;
	net->regMr_v5 = table->regMr;
	net->isend_v5 = table->isend;
	net->irecv_v5 = table->irecv;
	TAKE(regMrDmaBuf);
	TAKE(irecvConsumed);
}

static void bind_v8(struct net *net, const ncclNet_v8_t *table)
{
	net->init_v5 = table->init;
	net->props_v8 = table->getProperties;
	net->listen_v5 = table->listen;
	net->connect_v7 = table->connect;
	net->accept_v7 = table->accept;
	net->regMr_v8 = table->regMr;
	net->isend_v5 = table->isend;
	net->irecv_v5 = table->irecv;
	TAKE(regMrDmaBuf);
	TAKE(irecvConsumed);
}

static void bind_v9(struct net *net, const ncclNet_v9_t *table)
{
	net->init_v5 = table->init;
	net->props_v9 = table->getProperties;
	net->listen_v5 = table->listen;
	net->connect_v7 = table->connect;
	net->accept_v7 = table->accept;
	net->regMr_v8 = table->regMr;
	net->isend_v9 = table->isend;
	net->irecv_v9 = table->irecv;
	TAKE(regMrDmaBuf);
	TAKE(irecvConsumed);
}

static void bind_v10(struct net *net, const ncclNet_v10_t *table)
{
	net->init_v10 = table->init;
	net->props_v9 = table->getProperties;
	net->listen_v5 = table->listen;
	net->connect_v10 = table->connect;
	net->accept_v7 = table->accept;
	net->regMr_v8 = table->regMr;
	net->isend_v10 = table->isend;
	net->irecv_v10 = table->irecv;
	TAKE(regMrDmaBuf);
	TAKE(irecvConsumed);
}

static void bind_v11(struct net *net, const ncclNet_v11_t *table)
{
	net->init_v11 = table->init;
	net->props_v11 = table->getProperties;
	net->listen_v11 = table->listen;
	net->connect_v11 = table->connect;
	net->accept_v7 = table->accept;
	net->regMr_v8 = table->regMr;
	net->isend_v10 = table->isend;
	net->irecv_v10 = table->irecv;
	TAKE(regMrDmaBuf);
	TAKE(irecvConsumed);
	TAKE(finalize);
	TAKE(setNetAttr);
}

static void bind_v12(struct net *net, const ncclNet_v12_t *table)
{
	net->init_v11 = table->init;
	net->props_v12 = table->getProperties;
	net->listen_v11 = table->listen;
	net->connect_v11 = table->connect;
	net->accept_v7 = table->accept;
	net->regMr_v8 = table->regMr;
	net->isend_v10 = table->isend;
	net->irecv_v10 = table->irecv;
	TAKE(regMrDmaBuf);
	TAKE(irecvConsumed);
	TAKE(finalize);
	TAKE(setNetAttr);
}

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
	if (!net->name)
		return "name";
	if (!net->init_v5 && !net->init_v10 && !net->init_v11)
		return "init";
	if (!net->devices)
		return "devices";
	if (!net->props_v5 && !net->props_v7 && !net->props_v8 && !net->props_v9 && !net->props_v11 &&
	    !net->props_v12)
		return "getProperties";
	if (!net->listen_v5 && !net->listen_v11)
		return "listen";
	if (!net->connect_v5 && !net->connect_v7 && !net->connect_v10 && !net->connect_v11)
		return "connect";
	if (!net->accept_v5 && !net->accept_v7)
		return "accept";
	if (!net->regMr_v5 && !net->regMr_v8)
		return "regMr";
	if (!net->deregMr)
		return "deregMr";
	if (!net->isend_v5 && !net->isend_v9 && !net->isend_v10)
		return "isend";
	if (!net->irecv_v5 && !net->irecv_v9 && !net->irecv_v10)
		return "irecv";
	if (!net->iflush)
		return "iflush";
	if (!net->test)
		return "test";
	if (!net->closeSend)
		return "closeSend";
	if (!net->closeRecv)
		return "closeRecv";
	if (!net->closeListen)
		return "closeListen";
	if (net->version >= 11 && !net->finalize)
		return "finalize";
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
