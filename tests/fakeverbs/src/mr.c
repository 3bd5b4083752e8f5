/* Protection domains and memory regions. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct pd *pd;
	int err = foreign(to_context(context)->epoch) ? EIO : fault_verb(VERB_alloc_pd, NONE);

	if (err) {
		errno = err;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->ibv.context = context;
	pd->ibv.handle = atomic_fetch_add(&shm->next_pd, 1);
	return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (foreign(to_context(pd->context)->epoch))
		return EIO;
	if (atomic_load(&to_pd(pd)->users))
		return EBUSY;
	free(to_pd(pd));
	return 0;
}

static bool busy(uint32_t at) { return atomic_load(&shm->mr[at].key) || atomic_load(&shm->mr[at].closing); }

static int enter(struct ibv_pd *pd, uint64_t addr, uint64_t length, uint64_t iova, uint32_t access, bool gpu, uint32_t *key)
{
	_Atomic uint64_t *registered = &shm->node[fake.node].registered;
	struct shm_mr *m = NULL;
	uint32_t at;

	shm_lock(&shm->table);
	if (fault_reg(atomic_load(registered), length)) {
		shm_unlock(&shm->table);
		return ENOMEM;
	}
	at = rota_take(&shm->mrs, MAX_MRS, busy);
	if (at < MAX_MRS)
		m = &shm->mr[at];
	if (m) {
		m->proc = fake.proc;
		m->pd = pd->handle;
		m->access = access;
		m->addr = addr;
		m->iova = iova;
		m->length = length;
		m->gpu = gpu;
		m->tag = (m->tag + 1) & 0xff;
		*key = (at + 1) << 8 | m->tag;
		atomic_fetch_add(registered, length);
		atomic_store(&m->key, *key);
	}
	shm_unlock(&shm->table);
	return m ? 0 : ENOMEM;
}

static int check_access(unsigned int access)
{
	const unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	if (access & ~(known | IBV_ACCESS_OPTIONAL_RANGE))
		return access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB) ? EOPNOTSUPP : EINVAL;
	return access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/* Makes the region whose bytes the process reaches at `readable`, and gives it the mapping. */
static struct ibv_mr *make(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access, uint64_t readable,
			   bool gpu, struct memory_map *map)
{
	struct mr *mr = calloc(1, sizeof(*mr));
	int err = mr ? enter(pd, readable, length, iova, access, gpu, &mr->ibv.lkey) : ENOMEM;

	if (err) {
		memory_unmap(map);
		free(mr);
		errno = err;
		return NULL;
	}
	mr->map = *map;
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	mr->ibv.rkey = mr->ibv.lkey;
	mr->ibv.handle = (mr->ibv.lkey >> 8) - 1;
	atomic_fetch_add(&to_pd(pd)->users, 1);
	return &mr->ibv;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	int err = foreign(to_context(pd->context)->epoch) ? EIO : fault_verb(VERB_reg_mr, NONE);
	struct memory_map none = {0};
	uint64_t readable = 0;
	bool gpu = false;

	if (!err)
		err = check_access(access);
	if (!err && length == 0)
		err = EINVAL;
	if (!err)
		err = memory_find((uint64_t)addr, length, access, &readable, &gpu);
	if (err) {
		errno = err;
		return NULL;
	}
	return make(pd, addr, length, iova, access, readable, gpu, &none);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg(pd, addr, length, (uint64_t)addr, (unsigned int)access);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return reg(pd, addr, length, iova, access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE);
}

/* The order of the checks is the kernel's, so that a call with a descriptor of -1 tells whether the device takes DMA-BUFs. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	unsigned int asked = (unsigned int)access;
	int err = foreign(to_context(pd->context)->epoch) ? EIO : fault_verb(VERB_reg_dmabuf_mr, NONE);
	struct memory_map map = {0};
	uint64_t readable = 0;

	if (!err && offset % PAGE != iova % PAGE)
		err = EINVAL;
	if (!err)
		err = check_access(asked);
	if (!err)
		err = memory_map(fd, offset, length, &map, &readable);
	if (err) {
		errno = err;
		return NULL;
	}
	return make(pd, (void *)offset, length, iova, asked, readable, true, &map);
}

/* Bytes move to and from this process under a lock of one of its queue pairs, which is taken before keys are looked at. Having had each
 * of them once, nobody uses a key any more that was taken back before. */
static void outlast_copies(void)
{
	pthread_mutex_lock(&fake.objects);
	for (int i = 0; i < fake.qp_end; i++)
		if (fake.qp[i] && !foreign(fake.qp[i]->epoch)) {
			pthread_mutex_lock(&fake.qp[i]->lock);
			qp_lock(fake.qp[i]->s);
			qp_unlock(fake.qp[i]->s);
			pthread_mutex_unlock(&fake.qp[i]->lock);
		}
	pthread_mutex_unlock(&fake.objects);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct shm_mr *m = &shm->mr[mr->handle];
	int err = foreign(to_context(mr->context)->epoch) ? EIO : fault_verb(VERB_dereg_mr, NONE);

	if (err)
		return err;
	m->closing = true;
	atomic_store(&m->key, 0);
	outlast_copies();
	late_overwrite(fake.proc, m->addr, m->length);
	m->closing = false;
	atomic_fetch_sub(&shm->node[fake.node].registered, mr->length);
	atomic_fetch_sub(&to_pd(mr->pd)->users, 1);
	memory_unmap(&to_mr(mr)->map);
	free(to_mr(mr));
	return 0;
}

/* Finds the region that `key` names in process `proc`; NULL where the key, the domain, the range or the access does not fit. */
const struct shm_mr *mr_find(uint32_t key, int proc, uint32_t pd, uint64_t addr, uint64_t length, uint32_t access)
{
	uint32_t i = (key >> 8) - 1;
	const struct shm_mr *m = &shm->mr[i];

	if (i >= MAX_MRS || atomic_load(&m->key) != key || m->proc != proc || m->pd != pd)
		return NULL;
	if ((m->access & access) != access || addr < m->iova || length > m->length || addr - m->iova > m->length - length)
		return NULL;
	return m;
}
