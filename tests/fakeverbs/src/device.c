/* The list of devices and what they say of themselves. */
#include "fake.h"

#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A device as the program sees it lives for ever: lists come and go, contexts keep pointing at it. */
static struct ibv_device devices[MAX_DEVICES];

const char *sysfs_root(void)
{
	static char root[4096];

	if (!root[0] && fake.node >= 0)
		snprintf(root, sizeof(root), "%s/nodes/%s/sys", fake.dir, shm->node[fake.node].name);
	return root;
}

static struct ibv_device *device_at(int index)
{
	const struct shm_device *d = &shm->device[index];
	struct ibv_device *v = &devices[index];
	char path[128], class[4200] = "/sys/class";

	if (v->name[0])
		return v;
	v->node_type = IBV_NODE_CA;
	v->transport_type = IBV_TRANSPORT_IB;
	/* In a node's own mount namespace the tree lies where every program looks; otherwise in the fabric's directory. */
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", d->name);
	if (access(path, F_OK) != 0)
		snprintf(class, sizeof(class), "%s/class", sysfs_root());
	if (strlen(class) < 150) { /* else no path at all, which no program follows */
		snprintf(v->ibdev_path, sizeof(v->ibdev_path), "%.150s/infiniband/%s", class, d->name);
		snprintf(v->dev_path, sizeof(v->dev_path), "%.150s/infiniband_verbs/uverbs%d", class,
			 index - shm->node[d->node].first_device);
	}
	snprintf(v->dev_name, sizeof(v->dev_name), "uverbs%d", index - shm->node[d->node].first_device);
	snprintf(v->name, sizeof(v->name), "%s", d->name);
	return v;
}

static int index_of(struct ibv_device *v)
{
	return (int)(v - devices);
}

/* The real library loads the providers of the devices that it lists. Of those, this one has a file beside itself for devices with
 * Data Direct. */
static void load_provider(const struct shm_node *n)
{
	static atomic_bool looked;
	char path[4200];
	Dl_info own;
	bool wanted = false;

	for (int i = 0; i < n->devices; i++)
		wanted |= shm->device[n->first_device + i].dma[0] != 0;
	if (!wanted || atomic_exchange(&looked, true) || !dladdr(devices, &own) || !strrchr(own.dli_fname, '/'))
		return;
	snprintf(path, sizeof(path), "%.*s/mlx5/libmlx5.so.1", (int)(strrchr(own.dli_fname, '/') - own.dli_fname), own.dli_fname);
	if (access(path, F_OK) == 0 && !dlopen(path, RTLD_NOW | RTLD_LOCAL))
		fake_say("%s: %s", path, dlerror());
}

#undef ibv_get_device_list
struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list;
	const struct shm_node *n;
	int err = fake_attach();

	if (num)
		*num = 0;
	if (err) {
		errno = err;
		return NULL;
	}
	n = &shm->node[fake.node];
	load_provider(n);
	list = calloc((size_t)n->devices + 1, sizeof(*list));
	if (!list)
		return NULL;
	for (int i = 0; i < n->devices; i++)
		list[i] = device_at(n->first_device + i);
	if (num)
		*num = n->devices;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

int ibv_get_device_index(struct ibv_device *d)
{
	return index_of(d);
}

__be64 ibv_get_device_guid(struct ibv_device *d)
{
	return shm->device[index_of(d)].guid;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	static const struct ibv_context_ops ops = {
		.poll_cq = poll_cq, .req_notify_cq = req_notify_cq, .post_send = post_send, .post_recv = post_recv,
	};
	struct context *c;
	int err = fake_enter();

	if (!err)
		err = fault_verb(VERB_open_device, NONE);
	c = err ? NULL : calloc(1, sizeof(*c));
	if (!c) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	c->device = index_of(d);
	c->epoch = fake.epoch;
	c->last = &c->first;
	pthread_mutex_init(&c->lock, NULL);
	c->verbs.sz = sizeof(c->verbs);
	c->verbs.query_port = query_port_attr;
	c->verbs.query_device_ex = query_device_ex;
	c->verbs.create_qp_ex = create_qp_ex;
	c->verbs.context.device = d;
	c->verbs.context.ops = ops;
	c->verbs.context.num_comp_vectors = 1;
	c->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->verbs.context.mutex, NULL);
	if (async_open(c)) {
		err = errno;
		free(c);
		errno = err;
		return NULL;
	}
	c->verbs.context.cmd_fd = c->verbs.context.async_fd;
	pthread_mutex_lock(&fake.objects);
	c->next = fake.contexts;
	fake.contexts = c;
	pthread_mutex_unlock(&fake.objects);
	return &c->verbs.context;
}

int ibv_close_device(struct ibv_context *context)
{
	struct context *c = to_context(context);

	pthread_mutex_lock(&fake.objects);
	for (struct context **p = &fake.contexts; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	pthread_mutex_unlock(&fake.objects);
	async_close(c);
	free(c);
	return 0;
}

int context_port(const struct context *c, unsigned num)
{
	const struct shm_device *d = &shm->device[c->device];

	return num >= 1 && (int)num <= d->ports ? d->first_port + (int)num - 1 : NONE;
}

static void device_attr(const struct context *c, struct ibv_device_attr *a)
{
	const struct shm_device *d = &shm->device[c->device];

	memset(a, 0, sizeof(*a));
	strcpy(a->fw_ver, "1.0.0");
	a->node_guid = d->guid;
	a->sys_image_guid = d->image_guid;
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 0xfffff000;
	a->vendor_id = 0xffffff;
	a->hw_ver = 1;
	a->max_qp = MAX_QPS;
	a->max_qp_wr = MAX_WR;
	a->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_PORT_ACTIVE_EVENT;
	a->max_sge = MAX_SGE;
	a->max_sge_rd = MAX_SGE;
	a->max_cq = MAX_CQS;
	a->max_cqe = MAX_CQE;
	a->max_mr = MAX_MRS;
	a->max_pd = 0x7ffc;
	a->max_qp_rd_atom = MAX_RD_ATOMIC;
	a->max_qp_init_rd_atom = MAX_RD_ATOMIC;
	a->max_res_rd_atom = MAX_RD_ATOMIC * MAX_QPS;
	a->atomic_cap = IBV_ATOMIC_NONE;
	a->max_pkeys = 1;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = (uint8_t)d->ports;
}

#undef ibv_query_device
int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
	struct context *c = to_context(context);
	int err = foreign(c->epoch) ? EIO : fault_verb(VERB_query_device, NONE);

	if (!err)
		device_attr(c, a);
	return err;
}

int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *a, size_t size)
{
	struct ibv_device_attr base;
	int err;

	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof(a->orig_attr))
		return EOPNOTSUPP;
	err = ibv_query_device(context, &base);
	if (err)
		return err;
	memset(a, 0, size);
	a->orig_attr = base;
	if (size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof(a->phys_port_cnt_ex))
		a->phys_port_cnt_ex = base.phys_port_cnt;
	return 0;
}

/* The coding of lanes and lane rate whose product is nearest below the port's speed. */
static void port_speed(uint32_t mbps, struct ibv_port_attr *a)
{
	static const struct { uint32_t mbps; uint8_t width, speed; } known[] = {
		{800000, 4, 128}, {400000, 2, 128}, {200000, 2, 64}, {100000, 2, 32}, {56000, 2, 16}, {50000, 1, 64},
		{40000, 2, 4},    {25000, 1, 32},   {10000, 1, 4},   {5000, 1, 2},
	};

	a->active_width = 1;
	a->active_speed = 1;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (mbps >= known[i].mbps) {
			a->active_width = known[i].width;
			a->active_speed = known[i].speed;
			return;
		}
}

int query_port_attr(struct ibv_context *context, uint8_t num, struct ibv_port_attr *out, size_t size)
{
	struct context *c = to_context(context);
	int at = context_port(c, num), err = foreign(c->epoch) ? EIO : fault_verb(VERB_query_port, at);
	struct ibv_port_attr a = {0};

	if (err)
		return err;
	if (at < 0)
		return EINVAL;
	a.state = port_state(at);
	a.phys_state = a.state == IBV_PORT_ACTIVE ? 5 : 3;
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = port_mtu(&shm->port[at]);
	a.gid_tbl_len = GIDS;
	a.port_cap_flags = IBV_PORT_CM_SUP | (shm->port[at].infiniband ? 0 : IBV_PORT_IP_BASED_GIDS);
	a.max_msg_sz = shm->device[c->device].max_msg_sz;
	a.pkey_tbl_len = 1;
	a.max_vl_num = 1;
	a.link_layer = IBV_LINK_LAYER_ETHERNET;
	if (shm->port[at].infiniband) {
		a.link_layer = IBV_LINK_LAYER_INFINIBAND;
		a.lid = shm->port[at].lid;
		a.sm_lid = port_sm_lid(&shm->port[at]);
	}
	port_speed(shm->port[at].mbps, &a);
	memcpy(out, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

#undef ibv_query_port
/* This symbol writes no more than old programs have room for. */
int ibv_query_port(struct ibv_context *context, uint8_t num, struct _compat_ibv_port_attr *a)
{
	return query_port_attr(context, num, (struct ibv_port_attr *)a, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static const struct shm_gid *gid_at(struct ibv_context *context, uint32_t num, uint32_t index, int *port, int *err)
{
	struct context *c = to_context(context);

	*port = context_port(c, num);
	*err = foreign(c->epoch) ? EIO : fault_verb(VERB_query_gid, *port);
	if (!*err && (*port < 0 || index >= GIDS))
		*err = EINVAL;
	return *err ? NULL : &shm->port[*port].gid[index];
}

int ibv_query_gid(struct ibv_context *context, uint8_t num, int index, union ibv_gid *gid)
{
	int port, err;
	const struct shm_gid *g = gid_at(context, num, (uint32_t)index, &port, &err);

	if (!g) {
		errno = err;
		return -1;
	}
	*gid = g->gid;
	return 0;
}

static void fill_entry(struct ibv_gid_entry *e, int port, uint32_t index)
{
	const struct shm_port *p = &shm->port[port];

	e->gid = p->gid[index].gid;
	e->gid_index = index;
	e->port_num = p->num;
	e->gid_type = p->gid[index].type;
	e->ndev_ifindex = p->netdev[0] ? if_nametoindex(p->netdev) : 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t num, uint32_t index, struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	int port, err;

	if (flags || size < sizeof(*e))
		return EINVAL;
	if (!gid_at(context, num, index, &port, &err))
		return err;
	if (index >= shm->port[port].gids)
		return ENODATA;
	fill_entry(e, port, index);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	struct context *c = to_context(context);
	const struct shm_device *d = &shm->device[c->device];
	size_t n = 0;

	if (flags || size < sizeof(*e))
		return -EINVAL;
	for (int port = d->first_port; port < d->first_port + d->ports; port++)
		for (uint32_t i = 0; i < shm->port[port].gids && n < max; i++)
			fill_entry(&e[n++], port, i);
	return (ssize_t)n;
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t num, unsigned int index, unsigned int *type)
{
	int port, err;
	const struct shm_gid *g = gid_at(context, num, index, &port, &err);

	if (!g) {
		errno = err;
		return -1;
	}
	*type = g->type == IBV_GID_TYPE_ROCE_V2; /* that interface counts InfiniBand and RoCE v1 as one */
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t num, int index, __be16 *pkey)
{
	if (context_port(to_context(context), num) < 0 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t num, __be16 pkey)
{
	if (context_port(to_context(context), num) >= 0 && pkey == 0xffff)
		return 0;
	errno = EINVAL;
	return -1;
}
