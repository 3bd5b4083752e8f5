/* The topology file: one thing a line, words separated by blanks, the rest of a line after # is a comment.
 *
 *   node  NAME [peermem]
 *   port  NODE DEVICE [port N] [netdev IF] [addr A/LEN]... [mac M] [speed 100G] [mtu 1500] [pci P] [pcie 32.0x4]
 *         [cage C] [image I] [gids mlx5|rxe] [msg N] [inline N] [ece V:O] [dma PCI]
 *   port  NODE DEVICE layer infiniband [port N] [lid N] [mac M] [speed 100G] [mtu 4096] [pci P] ...
 *   netif NODE IF [addr A/LEN]... [mac M] [speed 100G] [mtu 1500] [pci P] [pcie 32.0x4] [cage C]
 *   link  NODE:DEVICE NODE:DEVICE [rate 10Gb|1GB] [latency 10us] [mtu N]
 *   mgmt  SUBNET | none
 *   resolve TIME
 */
#include "fakenet.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 64, LINE = 4096 };

struct port_line {
	int node, num;
	char device[64], pci[256], dma[256], image[64], cage[16], netdev[16], pcie_speed[8];
	uint32_t pcie_width;
	uint8_t mac[6];
	bool has_mac, rxe, plain, infiniband;
	uint32_t mbps, mtu, msg, most_inline, addrs, lid, ece_vendor, ece_options;
	struct { union ibv_gid gid; uint32_t prefix; } addr[GIDS];
};

struct reader {
	struct shm *s;
	const char *file;
	int line;
	char *err;
	size_t n;
	bool failed;
	struct port_line *ports;
	size_t count;
};

static bool bad(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool bad(struct reader *r, const char *fmt, ...)
{
	int used = snprintf(r->err, r->n, "%s:%d: ", r->file, r->line);
	va_list ap;

	va_start(ap, fmt);
	if (used > 0 && (size_t)used < r->n)
		vsnprintf(r->err + used, r->n - (size_t)used, fmt, ap);
	va_end(ap);
	r->failed = true;
	return false;
}

/* A name that may stand in a path and in "node:device". */
static bool name_ok(const char *s, size_t size)
{
	if (!*s || strlen(s) >= size || *s == '.')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			return false;
	return true;
}

static bool take_name(struct reader *r, const char *what, const char *s, char *to, size_t size)
{
	if (!name_ok(s, size))
		return bad(r, "%s '%s': want at most %zu letters, digits, '.', '_' or '-'", what, s, size - 1);
	strcpy(to, s);
	return true;
}

/* A number with a unit from a list "unit factor"; units are tried in order. */
static bool scaled(const char *s, const char *const *units, const double *factors, double max, uint64_t *out)
{
	char *end;
	double v;

	if (!isdigit((unsigned char)*s))
		return false;
	v = strtod(s, &end);
	for (size_t i = 0; units[i]; i++)
		if (strcmp(end, units[i]) == 0) {
			v *= factors[i];
			if (!(v <= max))
				return false;
			*out = (uint64_t)v;
			return true;
		}
	return false;
}

static bool take_time(struct reader *r, const char *what, const char *s, uint64_t *ns)
{
	static const char *const units[] = {"ns", "us", "ms", "s", NULL};
	static const double factors[] = {1, 1e3, 1e6, 1e9};

	return scaled(s, units, factors, 3600e9, ns) || bad(r, "%s '%s': want a time of at most an hour like 500ns, 10us, 2ms or 1s", what, s);
}

static bool take_rate(struct reader *r, const char *s, uint64_t *bytes)
{
	static const char *const units[] = {"B", "KB", "MB", "GB", "Kb", "Mb", "Gb", NULL};
	static const double factors[] = {1, 1e3, 1e6, 1e9, 125, 125e3, 125e6};

	return (scaled(s, units, factors, 1e12, bytes) && *bytes) || bad(r, "rate '%s': want bytes a second like 1GB or bits like 10Gb", s);
}

static bool take_number(struct reader *r, const char *what, const char *s, uint64_t min, uint64_t max, uint32_t *out)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (!isdigit((unsigned char)*s) || *end || errno || v < min || v > max)
		return bad(r, "%s '%s': want a number from %llu to %llu", what, s, (unsigned long long)min, (unsigned long long)max);
	*out = (uint32_t)v;
	return true;
}

static bool take_addr(struct reader *r, struct port_line *p, const char *s)
{
	char text[64], *slash;
	union ibv_gid *g;
	uint32_t prefix;
	bool v6;

	if (p->addrs == (GIDS - 2) / 2)
		return bad(r, "addr '%s': a port has room for %d addresses", s, (GIDS - 2) / 2);
	snprintf(text, sizeof(text), "%s", s);
	slash = strchr(text, '/');
	if (!slash)
		return bad(r, "addr '%s': want an address with its prefix length, like 192.168.1.1/24", s);
	*slash = 0;
	g = &p->addr[p->addrs].gid;
	memset(g, 0, sizeof(*g));
	g->raw[10] = g->raw[11] = 0xff;
	v6 = inet_pton(AF_INET, text, g->raw + 12) != 1;
	if (v6 && inet_pton(AF_INET6, text, g->raw) != 1)
		return bad(r, "addr '%s': this is neither an IPv4 nor an IPv6 address", s);
	if (!take_number(r, "prefix length", slash + 1, 0, v6 ? 128 : 32, &prefix))
		return false;
	p->addr[p->addrs++].prefix = prefix;
	return true;
}

static bool take_mac(struct reader *r, const char *s, uint8_t *mac)
{
	int n = 0;

	if (sscanf(s, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5, &n) == 6 && !s[n])
		return true;
	return bad(r, "mac '%s': want six bytes like 02:00:00:00:00:01", s);
}

/* An address dddd:bb:dd.f gets a root port of its own above it, a path is taken as it is. */
static bool take_pci(struct reader *r, const char *s, char out[256])
{
	unsigned dom, bus, dev, fn;
	int n = 0;

	if (strchr(s, '/')) {
		if (*s == '/' || strstr(s, "..") || strlen(s) >= 256)
			return bad(r, "pci '%s': want a path below /sys/devices", s);
		strcpy(out, s);
		return true;
	}
	if (sscanf(s, "%4x:%2x:%2x.%1x%n", &dom, &bus, &dev, &fn, &n) != 4 || s[n] || strlen(s) != 12 || dev > 31 || fn > 7)
		return bad(r, "pci '%s': want an address like 0000:01:00.0, or a path below /sys/devices", s);
	snprintf(out, 256, "pci%04x:00/%04x:00:%02x.0/%s", dom, dom, bus & 31, s);
	return true;
}

static bool take_pcie(struct reader *r, const char *s, struct port_line *p)
{
	static const char *const known[] = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
	const char *x = strchr(s, 'x');

	for (size_t i = 0; x && i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i]) == (size_t)(x - s) && strncmp(known[i], s, (size_t)(x - s)) == 0) {
			strcpy(p->pcie_speed, known[i]);
			return take_number(r, "pcie width", x + 1, 1, 32, &p->pcie_width);
		}
	return bad(r, "pcie '%s': want speed and width like 32.0x4", s);
}

static int node_named(struct reader *r, const char *name)
{
	struct shm *s = r->s;

	for (uint32_t i = 0; i < s->nodes; i++)
		if (strcmp(s->node[i].name, name) == 0)
			return (int)i;
	if (s->nodes == MAX_NODES) {
		bad(r, "node '%s': more than %d nodes", name, MAX_NODES);
		return NONE;
	}
	if (!take_name(r, "node", name, s->node[s->nodes].name, sizeof(s->node[0].name)))
		return NONE;
	return (int)s->nodes++;
}

/* What an interface has, be it an RDMA port's or not. */
static bool netif_option(struct reader *r, struct port_line *p, const char *key, const char *value)
{
	uint64_t v = 0;
	static const char *const units[] = {"G", "M", NULL};
	static const double factors[] = {1000, 1};

	if (strcmp(key, "addr") == 0)
		return take_addr(r, p, value);
	if (strcmp(key, "mac") == 0)
		return p->has_mac = true, take_mac(r, value, p->mac);
	if (strcmp(key, "speed") == 0) {
		if (!scaled(value, units, factors, 1e7, &v) || !v)
			return bad(r, "speed '%s': want bits a second like 100G or 2500M", value);
		p->mbps = (uint32_t)v;
		return true;
	}
	if (strcmp(key, "mtu") == 0)
		return take_number(r, key, value, 256, 65535, &p->mtu);
	if (strcmp(key, "pci") == 0)
		return take_pci(r, value, p->pci);
	if (strcmp(key, "pcie") == 0)
		return take_pcie(r, value, p);
	if (strcmp(key, "cage") == 0)
		return take_name(r, key, value, p->cage, sizeof(p->cage));
	if (p->plain)
		return bad(r, "netif: unknown word '%s'; known are addr, mac, speed, mtu, pci, pcie, cage", key);
	return bad(r, "port: unknown word '%s'; known are port, layer, lid, netdev, addr, mac, speed, mtu, msg, inline, ece, dma, pci, pcie, cage, image, gids", key);
}

/* The vendor and the options of enhanced connection establishment that the device can do. */
static bool take_ece(struct reader *r, const char *value, struct port_line *p)
{
	int used = 0;

	if (sscanf(value, "%8x:%8x%n", &p->ece_vendor, &p->ece_options, &used) == 2 && !value[used] && p->ece_vendor)
		return true;
	return bad(r, "ece '%s': want VENDOR:OPTIONS, both hexadecimal, as in 15b3:10000005", value);
}

static bool port_option(struct reader *r, struct port_line *p, const char *key, const char *value)
{
	if (strcmp(key, "port") == 0)
		return take_number(r, key, value, 1, 254, (uint32_t *)&p->num);
	if (strcmp(key, "layer") == 0) {
		p->infiniband = strcmp(value, "infiniband") == 0;
		return p->infiniband || strcmp(value, "ethernet") == 0 || bad(r, "layer '%s': want ethernet or infiniband", value);
	}
	if (strcmp(key, "lid") == 0)
		return take_number(r, key, value, 1, 0xbfff, &p->lid);
	if (strcmp(key, "netdev") == 0)
		return take_name(r, key, value, p->netdev, sizeof(p->netdev));
	if (strcmp(key, "msg") == 0)
		return take_number(r, key, value, 1, 1u << 31, &p->msg);
	if (strcmp(key, "inline") == 0)
		return take_number(r, key, value, 0, MAX_INLINE, &p->most_inline);
	if (strcmp(key, "ece") == 0)
		return take_ece(r, value, p);
	if (strcmp(key, "dma") == 0)
		return take_pci(r, value, p->dma);
	if (strcmp(key, "image") == 0)
		return take_name(r, key, value, p->image, sizeof(p->image));
	if (strcmp(key, "gids") == 0) {
		p->rxe = strcmp(value, "rxe") == 0;
		return p->rxe || strcmp(value, "mlx5") == 0 || bad(r, "gids '%s': want mlx5 (version 1 and 2) or rxe (version 2 only)", value);
	}
	return netif_option(r, p, key, value);
}

/* What makes sense on one link layer only. An InfiniBand port has no interface: nothing here is IP over InfiniBand. */
static bool layer_ok(struct reader *r, struct port_line *p)
{
	if (!p->infiniband && p->mtu && p->mtu < 576)
		return bad(r, "mtu '%u': want a number from 576 to 65535", p->mtu);
	if (!p->infiniband)
		return !p->lid || bad(r, "lid %u: only a port with layer infiniband has one", p->lid);
	if (p->netdev[0] || p->addrs || p->rxe)
		return bad(r, "device '%s': a port with layer infiniband has no netdev, addr or gids", p->device);
	if (!p->mtu)
		p->mtu = 4096;
	if (p->mtu & (p->mtu - 1) || p->mtu < 256 || p->mtu > 4096)
		return bad(r, "mtu '%u': InfiniBand has 256, 512, 1024, 2048 and 4096", p->mtu);
	return true;
}

static void default_netdev(struct port_line *p)
{
	if (p->num == 1)
		snprintf(p->netdev, sizeof(p->netdev), "e%.14s", p->device);
	else
		snprintf(p->netdev, sizeof(p->netdev), "e%.10sp%u", p->device, (unsigned)p->num & 0xff);
}

/* A port, or an interface without one, which is one port of a device that has its name. */
static bool port_line(struct reader *r, char **w, int n)
{
	bool plain = strcmp(w[0], "netif") == 0;
	struct port_line *p;

	if (n < 3 || n % 2 == 0)
		return bad(r, "want: %s NODE %s [word value]...", w[0], plain ? "IF" : "DEVICE");
	p = realloc(r->ports, (r->count + 1) * sizeof(*p));
	if (!p)
		return bad(r, "out of memory");
	r->ports = p;
	p = &p[r->count];
	memset(p, 0, sizeof(*p));
	p->mbps = 100000;
	p->msg = 1u << 30;
	p->most_inline = MAX_INLINE;
	p->num = 1;
	p->plain = plain;
	strcpy(p->pcie_speed, "32.0");
	p->pcie_width = 16;
	p->node = node_named(r, w[1]);
	if (p->node < 0 || !take_name(r, "device", w[2], p->device, sizeof(p->device)))
		return false;
	if (plain && !take_name(r, "interface", w[2], p->netdev, sizeof(p->netdev)))
		return false;
	for (int i = 3; i < n; i += 2)
		if (!(plain ? netif_option : port_option)(r, p, w[i], w[i + 1]))
			return false;
	if (!layer_ok(r, p))
		return false;
	if (!p->mtu)
		p->mtu = 1500;
	for (size_t i = 0; i < r->count; i++)
		if (r->ports[i].node == p->node && strcmp(r->ports[i].device, p->device) == 0 &&
		    (r->ports[i].num == p->num || plain != r->ports[i].plain))
			return bad(r, "port %d of device '%s' of node '%s' is there already", p->num, p->device, w[1]);
	if (!p->netdev[0] && !p->infiniband)
		default_netdev(p);
	for (size_t i = 0; i < r->count; i++)
		if (p->netdev[0] && r->ports[i].node == p->node && strcmp(r->ports[i].netdev, p->netdev) == 0)
			return bad(r, "interface '%s' of node '%s' is there already: name this one with netdev", p->netdev, w[1]);
	r->count++;
	return true;
}

static uint64_t guid_of(const uint8_t *mac)
{
	uint8_t b[8] = {mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
	uint64_t g;

	memcpy(&g, b, 8);
	return g;
}

static void add_gid(struct shm_port *p, const union ibv_gid *g, uint32_t prefix, bool rxe)
{
	if (p->infiniband) {
		p->gid[p->gids].gid = *g;
		p->gid[p->gids++].type = IBV_GID_TYPE_IB;
		return;
	}
	for (int v2 = rxe; v2 < 2; v2++) {
		p->gid[p->gids].gid = *g;
		p->gid[p->gids].type = v2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
		p->prefix[p->gids++] = prefix;
	}
}

static void place_port(struct shm *s, struct shm_device *d, int index, struct port_line *l)
{
	struct shm_port *p = &s->port[s->ports];
	union ibv_gid local = {.raw = {0xfe, 0x80}};
	uint64_t guid;

	if (!l->has_mac)
		memcpy(l->mac, (uint8_t[]){0x02, 0xfb, (uint8_t)l->node, (uint8_t)(index - s->node[l->node].first_device), (uint8_t)l->num, 1}, 6);
	memcpy(p->mac, l->mac, 6);
	p->num = (uint8_t)l->num;
	p->infiniband = l->infiniband;
	p->lid = (uint16_t)l->lid;
	p->device = index;
	p->link = NONE;
	p->mbps = l->mbps;
	p->netdev_mtu = l->mtu;
	strcpy(p->netdev, l->netdev);
	strcpy(p->phys_port, l->cage);
	guid = guid_of(p->mac);
	memcpy(local.raw + 8, &guid, 8);
	add_gid(p, &local, 64, l->rxe);
	for (uint32_t i = p->gids; l->infiniband && i < GIDS; i++)
		memcpy(p->gid[i].gid.raw, local.raw, 8); /* unused entries have the prefix alone */
	for (uint32_t i = 0; i < l->addrs; i++)
		add_gid(p, &l->addr[i].gid, l->addr[i].prefix, l->rxe);
	if (d->ports++ == 0) {
		d->first_port = (int)s->ports;
		d->guid = d->image_guid = guid;
		d->max_msg_sz = l->msg;
		d->max_inline = l->most_inline;
		strcpy(d->dma, l->dma);
		d->ece_vendor = l->ece_vendor;
		d->ece_options = l->ece_options;
	}
	s->ports++;
}

/* Lays nodes, devices and ports out so that each node's devices, and each device's ports, follow one another. */
static bool place(struct reader *r)
{
	struct shm *s = r->s;

	if (r->count > MAX_PORTS)
		return bad(r, "more than %d ports", MAX_PORTS);
	for (uint32_t n = 0; n < s->nodes; n++) {
		s->node[n].first_device = (int)s->devices;
		for (size_t k = 0; k < 2 * r->count; k++) { /* plain ones last */
			size_t i = k % r->count;
			struct port_line *l = &r->ports[i];
			struct shm_device *d = &s->device[s->devices];

			if (l->node != (int)n || l->num == 0 || l->plain != (k >= r->count))
				continue;
			strcpy(d->name, l->device);
			strcpy(d->pci, l->pci);
			strcpy(d->pcie_speed, l->pcie_speed);
			d->pcie_width = l->pcie_width;
			d->node = (int)n;
			for (int num = 1; num < 255; num++)
				for (size_t j = i; j < r->count; j++)
					if (r->ports[j].node == (int)n && r->ports[j].num == num && strcmp(r->ports[j].device, d->name) == 0)
						place_port(s, d, (int)s->devices, &r->ports[j]), r->ports[j].num = 0;
			for (size_t j = 0; l->image[0] && j < i; j++)
				if (r->ports[j].node == (int)n && strcmp(r->ports[j].image, l->image) == 0)
					for (int k = s->node[n].first_device; k < (int)s->devices; k++)
						if (strcmp(s->device[k].name, r->ports[j].device) == 0)
							d->image_guid = s->device[k].image_guid;
			if (s->port[d->first_port].num != 1 || s->port[d->first_port + d->ports - 1].num != d->ports)
				return bad(r, "device '%s' of node '%s': ports must be numbered from 1 without gaps", d->name, s->node[n].name);
			s->devices++;
			++*(l->plain ? &s->node[n].plain : &s->node[n].devices);
		}
	}
	return true;
}

/* A cable between two InfiniBand ports is a subnet of its own, which a manager at its first end has numbered. Like any other it has the
 * default prefix. */
static bool number_subnet(struct reader *r, const struct shm_link *l)
{
	struct shm_port *a = &r->s->port[l->port[0]], *b = &r->s->port[l->port[1]];

	if (a->infiniband != b->infiniband)
		return bad(r, "link: one end is InfiniBand and the other Ethernet");
	if (!a->infiniband)
		return true;
	if (!a->lid)
		a->lid = b->lid == 1 ? 2 : 1;
	if (!b->lid)
		b->lid = a->lid == 2 ? 1 : 2;
	return a->lid != b->lid || bad(r, "link: both ends have LID %u", a->lid);
}

static bool link_line(struct reader *r, char **w, int n)
{
	struct shm *s = r->s;
	struct shm_link *l = &s->link[s->links];
	uint64_t rate = 0;
	uint32_t mtu = 0;
	char why[512];

	if (n < 3 || n % 2 == 0)
		return bad(r, "want: link NODE:DEVICE NODE:DEVICE [word value]...");
	for (int end = 0; end < 2; end++) {
		int at = port_find(w[1 + end], why, sizeof(why));

		if (at < 0)
			return bad(r, "%s", why);
		if (s->port[at].link != NONE)
			return bad(r, "port '%s' has a cable already", w[1 + end]);
		l->port[end] = at;
		s->port[at].link = (int)s->links;
		s->port[at].end = end;
	}
	for (int i = 3; i < n; i += 2) {
		bool ok = strcmp(w[i], "rate") == 0      ? take_rate(r, w[i + 1], &rate)
			  : strcmp(w[i], "latency") == 0 ? take_time(r, "latency", w[i + 1], &l->latency)
			  : strcmp(w[i], "mtu") == 0
				  ? take_number(r, "mtu", w[i + 1], 576, 65535, &mtu)
				  : bad(r, "link: unknown word '%s'; known are rate, latency, mtu", w[i]);

		if (!ok)
			return false;
	}
	if (!number_subnet(r, l))
		return false;
	atomic_store(&l->rate, rate);
	if (mtu && s->port[l->port[0]].infiniband)
		return bad(r, "link: an InfiniBand port's mtu stands in its own line");
	if (mtu)
		s->port[l->port[0]].netdev_mtu = s->port[l->port[1]].netdev_mtu = mtu;
	s->links++;
	return true;
}

static bool mgmt_line(struct reader *r, char **w, int n)
{
	struct in_addr a;
	int len = 0, used = 0;
	char ip[32] = "";

	if (n == 2 && strcmp(w[1], "none") == 0) {
		r->s->mgmt[0] = 0;
		return true;
	}
	if (n != 2 || sscanf(w[1], "%31[0-9.]/%d%n", ip, &len, &used) != 2 || w[1][used] || inet_pton(AF_INET, ip, &a) != 1 || len < 8 ||
	    len > 24 || strlen(w[1]) >= sizeof(r->s->mgmt))
		return bad(r, "want: mgmt SUBNET, an IPv4 subnet with a prefix of 8 to 24 bits like 10.99.0.0/24, or mgmt none");
	strcpy(r->s->mgmt, w[1]);
	return true;
}

static bool node_line(struct reader *r, char **w, int n)
{
	bool peermem = n == 3 && strcmp(w[2], "peermem") == 0;
	int node;

	if (n != 2 && !peermem)
		return bad(r, "want: node NAME [peermem]");
	node = node_named(r, w[1]);
	if (node >= 0 && peermem)
		r->s->node[node].peermem = true;
	return node >= 0;
}

static bool is_link(char **w) { return strcmp(w[0], "link") == 0; }

static bool line(struct reader *r, char **w, int n, bool links)
{
	if (is_link(w))
		return !links || r->s->links < MAX_LINKS ? !links || link_line(r, w, n) : bad(r, "more than %d links", MAX_LINKS);
	if (links)
		return true;
	if (strcmp(w[0], "node") == 0)
		return node_line(r, w, n);
	if (strcmp(w[0], "port") == 0 || strcmp(w[0], "netif") == 0)
		return port_line(r, w, n);
	if (strcmp(w[0], "mgmt") == 0)
		return mgmt_line(r, w, n);
	if (strcmp(w[0], "resolve") == 0)
		return n == 2 ? take_time(r, "resolve", w[1], &r->s->resolve) : bad(r, "want: resolve TIME");
	return bad(r, "unknown word '%s'; a line starts with node, port, netif, link, mgmt or resolve", w[0]);
}

/* Links come in a second reading, when all ports are in place. */
static bool pass(struct reader *r, FILE *f, bool links)
{
	char text[LINE], *w[WORDS], *rest;

	rewind(f);
	r->line = 0;
	while (fgets(text, sizeof(text), f)) {
		int n = 0;

		r->line++;
		if (!strchr(text, '\n') && !feof(f))
			return bad(r, "line longer than %d bytes", LINE - 2);
		text[strcspn(text, "#")] = 0;
		for (char *t = strtok_r(text, " \t\r\n", &rest); t; t = strtok_r(NULL, " \t\r\n", &rest)) {
			if (n == WORDS)
				return bad(r, "more than %d words", WORDS);
			w[n++] = t;
		}
		if (n && !line(r, w, n, links))
			return false;
	}
	return true;
}

bool topology_read(struct shm *s, const char *file, char *err, size_t n)
{
	struct reader r = {.s = s, .file = file, .err = err, .n = n};
	FILE *f = fopen(file, "re");

	if (!f) {
		snprintf(err, n, "%s: %s", file, strerror(errno));
		return false;
	}
	s->resolve = 1000000000;
	strcpy(s->mgmt, "10.99.0.0/24");
	shm = s; /* port_find looks there */
	if (pass(&r, f, false) && s->nodes == 0)
		bad(&r, "there is no node in the file");
	if (!r.failed && place(&r))
		pass(&r, f, true);
	fclose(f);
	free(r.ports);
	return !r.failed;
}
