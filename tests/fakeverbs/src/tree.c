/* The directory of a node that has the shape of /sys: what programs read there about its devices and interfaces. */
#include "fakenet.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[3500]; /* of the node being written */

static void parents(char *path)
{
	for (char *p = path + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		if (mkdir(path, 0755) && errno != EEXIST)
			die("%s: %s", path, strerror(errno));
		*p = '/';
	}
}

/* Writes one line to the file `dir`/`name`. */
static void put(const char *dir, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void put(const char *dir, const char *name, const char *fmt, ...)
{
	char path[4200];
	va_list ap;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/%s", base, dir, name);
	parents(path);
	f = fopen(path, "w");
	if (!f)
		die("%s: %s", path, strerror(errno));
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fputc('\n', f);
	fclose(f);
}

static void point(const char *target, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void point(const char *target, const char *fmt, ...)
{
	char name[700], path[4300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/%s", base, name);
	parents(path);
	if (symlink(target, path) && errno != EEXIST)
		die("%s: %s", path, strerror(errno));
}

static void gid_text(const union ibv_gid *g, char out[40])
{
	for (int i = 0; i < 8; i++)
		out += sprintf(out, i ? ":%02x%02x" : "%02x%02x", g->raw[2 * i], g->raw[2 * i + 1]);
}

static const char *guid_text(uint64_t guid, char out[20])
{
	uint64_t g = be64toh(guid);

	snprintf(out, 20, "%04x:%04x:%04x:%04x", (unsigned)(g >> 48), (unsigned)(g >> 32 & 0xffff), (unsigned)(g >> 16 & 0xffff),
		 (unsigned)(g & 0xffff));
	return out;
}

/* Where a device's own directories lie, below the node's tree; like the kernel's, virtual ones are sorted by class. */
static void device_dir(const struct shm_device *d, const char *class, char out[512])
{
	if (d->pci[0])
		snprintf(out, 512, "devices/%s/%s", d->pci, class);
	else
		snprintf(out, 512, "devices/virtual/%s", class);
}

static void write_rate(const char *dir, uint32_t mbps)
{
	static const struct { uint32_t mbps; const char *text; } known[] = {
		{800000, "800 Gb/sec (8X NDR)"}, {400000, "400 Gb/sec (4X NDR)"},  {200000, "200 Gb/sec (4X HDR)"}, {100000, "100 Gb/sec (4X EDR)"},
		{56000, "56 Gb/sec (4X FDR)"},   {50000, "50 Gb/sec (1X HDR)"},    {40000, "40 Gb/sec (4X QDR)"},   {25000, "25 Gb/sec (1X EDR)"},
		{10000, "10 Gb/sec (1X QDR)"},   {5000, "5 Gb/sec (1X DDR)"},      {0, "2.5 Gb/sec (1X SDR)"},
	};
	size_t i = 0;

	while (mbps < known[i].mbps)
		i++;
	put(dir, "rate", "%s", known[i].text);
}

static void port_dir(const struct shm_port *p, char out[700])
{
	const struct shm_device *d = &shm->device[p->device];
	char dir[512];

	device_dir(d, "infiniband", dir);
	snprintf(out, 700, "%s/%s/ports/%d", dir, d->name, p->num);
}

static void netdev_dir(const struct shm_port *p, char out[700])
{
	char dir[512];

	device_dir(&shm->device[p->device], "net", dir);
	snprintf(out, 700, "%s/%s", dir, p->netdev);
}

static void set_base(const char *dir, int node)
{
	snprintf(base, sizeof(base), "%s/nodes/%s/sys", dir, shm->node[node].name);
}

static bool is_plain(int device)
{
	const struct shm_node *n = &shm->node[shm->device[device].node];

	return device >= n->first_device + n->devices;
}

void tree_port(const char *dir, int port)
{
	const struct shm_port *p = &shm->port[port];
	bool up = port_state(port) == IBV_PORT_ACTIVE;
	char at[700];

	set_base(dir, shm->device[p->device].node);
	if (!is_plain(p->device)) {
		port_dir(p, at);
		put(at, "state", "%s", up ? "4: ACTIVE" : "1: DOWN");
		put(at, "phys_state", "%s", up ? "5: LinkUp" : "3: Disabled");
	}
	if (p->infiniband)
		return;
	netdev_dir(p, at);
	put(at, "carrier", "%d", up);
	put(at, "operstate", "%s", up ? "up" : "down");
}

static void write_verbs_port(const struct shm_port *p)
{
	char at[700], sub[720], gid[40], index[16];

	port_dir(p, at);
	write_rate(at, p->mbps);
	put(at, "link_layer", "%s", p->infiniband ? "InfiniBand" : "Ethernet");
	put(at, "lid", "0x%x", p->lid);
	put(at, "lid_mask_count", "0");
	put(at, "sm_lid", "0x%x", port_sm_lid(p));
	put(at, "sm_sl", "0");
	put(at, "cap_mask", "0x04010000");
	snprintf(sub, sizeof(sub), "%s/pkeys", at);
	put(sub, "0", "0xffff");
	for (int i = 0; i < GIDS; i++) {
		snprintf(index, sizeof(index), "%d", i);
		gid_text(&p->gid[i].gid, gid);
		snprintf(sub, sizeof(sub), "%s/gids", at);
		put(sub, index, "%s", gid);
		if (i >= (int)p->gids)
			continue; /* the kernel has a file that cannot be read; here it is missing */
		snprintf(sub, sizeof(sub), "%s/gid_attrs/types", at);
		put(sub, index, "%s", p->gid[i].type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
		snprintf(sub, sizeof(sub), "%s/gid_attrs/ndevs", at);
		if (p->netdev[0])
			put(sub, index, "%s", p->netdev);
	}
}

static void write_netdev(const struct shm_port *p)
{
	char at[700], sub[720];

	netdev_dir(p, at);
	put(at, "address", "%02x:%02x:%02x:%02x:%02x:%02x", p->mac[0], p->mac[1], p->mac[2], p->mac[3], p->mac[4], p->mac[5]);
	put(at, "mtu", "%u", p->netdev_mtu);
	put(at, "speed", "%u", p->mbps);
	put(at, "type", "1");
	put(at, "flags", "0x1003");
	put(at, "dev_id", "0x0");
	put(at, "dev_port", "%d", p->num - 1);
	if (p->phys_port[0])
		put(at, "phys_port_name", "%s", p->phys_port);
	if (shm->device[p->device].pci[0])
		point("../..", "%s/device", at);
	snprintf(sub, sizeof(sub), "../../%s", at);
	point(sub, "class/net/%s", p->netdev);
}

static void write_pci(const struct shm_device *d)
{
	char at[300], up[256];

	snprintf(up, sizeof(up), "%s", d->pci);
	for (char *slash; up[0];) {
		snprintf(at, sizeof(at), "devices/%s", up);
		if (strchr(up, '/')) {
			put(at, "vendor", "0xffff");
			put(at, "device", "0xfa1e");
			put(at, "class", "%s", strcmp(up, d->pci) == 0 ? "0x020000" : "0x060400");
			put(at, "current_link_speed", "%s GT/s PCIe", d->pcie_speed);
			put(at, "current_link_width", "%u", d->pcie_width);
			put(at, "max_link_speed", "%s GT/s PCIe", d->pcie_speed);
			put(at, "max_link_width", "%u", d->pcie_width);
			put(at, "numa_node", "-1");
		}
		slash = strrchr(up, '/');
		if (!slash)
			break;
		*slash = 0;
	}
}

static void write_verbs_device(const struct shm_device *d, int index)
{
	char at[512], own[600], target[700], text[20], verbs[64];

	device_dir(d, "infiniband", at);
	snprintf(own, sizeof(own), "%s/%s", at, d->name);
	put(own, "node_type", "1: CA");
	put(own, "node_guid", "%s", guid_text(d->guid, text));
	put(own, "sys_image_guid", "%s", guid_text(d->image_guid, text));
	put(own, "node_desc", "%s %s", shm->node[d->node].name, d->name);
	put(own, "fw_ver", "1.0.0");
	put(own, "hw_rev", "1");
	put(own, "uevent", "NAME=%s", d->name);
	if (d->dma[0]) { /* for libmlx5.so.1; the kernel tells it by an ioctl */
		put(own, "fakeverbs_data_direct", "/devices/%s", d->dma);
		snprintf(target, sizeof(target), "devices/%s", d->dma);
		put(target, "class", "0x020700");
	}
	if (d->pci[0])
		point("../..", "%s/device", own);
	else if (!shm->port[d->first_port].infiniband)
		put(own, "parent", "%s", shm->port[d->first_port].netdev);
	snprintf(target, sizeof(target), "../../%s", own);
	point(target, "class/infiniband/%s", d->name);
	snprintf(verbs, sizeof(verbs), "class/infiniband_verbs/uverbs%d", index);
	put(verbs, "ibdev", "%s", d->name);
	put(verbs, "abi_version", "1");
	if (d->pci[0]) {
		snprintf(target, sizeof(target), "../../../devices/%s", d->pci);
		point(target, "%s/device", verbs);
	}
	for (int p = d->first_port; p < d->first_port + d->ports; p++)
		write_verbs_port(&shm->port[p]);
}

static void write_device(const char *dir, int index)
{
	const struct shm_device *d = &shm->device[index];

	if (d->pci[0])
		write_pci(d);
	if (!is_plain(index))
		write_verbs_device(d, index - shm->node[d->node].first_device);
	for (int p = d->first_port; p < d->first_port + d->ports; p++) {
		if (!shm->port[p].infiniband)
			write_netdev(&shm->port[p]);
		tree_port(dir, p);
	}
}

void tree_make(const char *dir)
{
	for (uint32_t n = 0; n < shm->nodes; n++) {
		char net[4096];

		set_base(dir, (int)n);
		snprintf(net, sizeof(net), "%s/class/net/", base);
		parents(net);
		if (shm->node[n].devices) /* else the kernel has no such class */
			put("class/infiniband_verbs", "abi_version", "6");
		if (shm->node[n].peermem)
			put("module/nvidia_peermem", "version", "580.0");
		for (int i = 0; i < shm->node[n].devices + shm->node[n].plain; i++)
			write_device(dir, shm->node[n].first_device + i);
	}
}
