/* Ports, and the cables between them. */
#include "shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int port_peer(int port)
{
	const struct shm_port *p = &shm->port[port];

	return p->link < 0 ? NONE : shm->link[p->link].port[!p->end];
}

/* A port is up when a cable joins it to a port that is switched on too. */
enum ibv_port_state port_state(int port)
{
	int peer = port_peer(port);

	if (peer < 0 || atomic_load(&shm->link[shm->port[port].link].unplugged) || atomic_load(&shm->port[port].down) ||
	    atomic_load(&shm->port[peer].down))
		return IBV_PORT_DOWN;
	return IBV_PORT_ACTIVE;
}

/* RoCE takes the largest InfiniBand MTU that fits the interface's with its headers (about 60 bytes); an InfiniBand port has its own. */
enum ibv_mtu port_mtu(const struct shm_port *p)
{
	static const struct { uint32_t bytes; enum ibv_mtu mtu; } sizes[] = {
		{4096, IBV_MTU_4096}, {2048, IBV_MTU_2048}, {1024, IBV_MTU_1024}, {512, IBV_MTU_512},
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (p->netdev_mtu >= sizes[i].bytes + (p->infiniband ? 0 : 60))
			return sizes[i].mtu;
	return IBV_MTU_256;
}

static bool has_gid(int port, const union ibv_gid *gid, uint32_t type)
{
	const struct shm_port *p = &shm->port[port];

	for (uint32_t i = 0; i < p->gids; i++)
		if (p->gid[i].type == type && memcmp(&p->gid[i].gid, gid, sizeof(*gid)) == 0)
			return true;
	return false;
}

/* The port that answers for `gid` on the wire of port `from`: itself, or the one across the cable; NONE when nobody does. */
int port_with_gid(int from, const union ibv_gid *gid, uint32_t type)
{
	int peer;

	if (has_gid(from, gid, type))
		return from;
	peer = port_peer(from);
	if (peer >= 0 && port_state(from) == IBV_PORT_ACTIVE && has_gid(peer, gid, type))
		return peer;
	return NONE;
}

/* The same by LID, the address within one InfiniBand subnet, which here is a cable. */
int port_with_lid(int from, uint16_t lid)
{
	int peer = port_peer(from);

	if (lid == shm->port[from].lid)
		return from;
	return peer >= 0 && port_state(from) == IBV_PORT_ACTIVE && lid == shm->port[peer].lid ? peer : NONE;
}

uint16_t port_sm_lid(const struct shm_port *p)
{
	return p->infiniband && p->link >= 0 ? shm->port[shm->link[p->link].port[0]].lid : 0;
}

int node_find(const char *name)
{
	for (uint32_t i = 0; i < shm->nodes; i++)
		if (strcmp(shm->node[i].name, name) == 0)
			return (int)i;
	return NONE;
}

/* Finds "node:device", "node:device/port" or "node:netdev"; NONE with a message when there is none. */
int port_find(const char *spec, char *err, size_t n)
{
	const char *colon = strchr(spec, ':'), *name, *slash;
	char node[32];
	int num = 1, at;

	if (!colon || colon == spec || (size_t)(colon - spec) >= sizeof(node)) {
		snprintf(err, n, "port '%s': want node:device, node:device/port or node:netdev", spec);
		return NONE;
	}
	memcpy(node, spec, (size_t)(colon - spec));
	node[colon - spec] = 0;
	at = node_find(node);
	if (at < 0) {
		snprintf(err, n, "port '%s': there is no node '%s'", spec, node);
		return NONE;
	}
	name = colon + 1;
	slash = strchr(name, '/');
	if (slash)
		num = atoi(slash + 1);
	for (uint32_t i = 0; i < shm->ports; i++) {
		const struct shm_port *p = &shm->port[i];
		const struct shm_device *d = &shm->device[p->device];
		size_t len = slash ? (size_t)(slash - name) : strlen(name);

		if (d->node != at)
			continue;
		if (!slash && strcmp(p->netdev, name) == 0)
			return (int)i;
		if (p->num == num && strlen(d->name) == len && strncmp(d->name, name, len) == 0)
			return (int)i;
	}
	snprintf(err, n, "port '%s': node '%s' has no such device, port or interface", spec, node);
	return NONE;
}

/* Tells the node's processes when the port's state is no longer `was`. */
void port_changed(int port, enum ibv_port_state was)
{
	enum ibv_port_state is = port_state(port);
	struct shm_event e = {
		.type = is == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR,
		.device = shm->port[port].device,
		.port = shm->port[port].num,
	};

	if (is != was)
		proc_event_all(&e);
}
