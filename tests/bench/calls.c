#include "calls.h"

enum { TAG = 7 };

const ncclNet_v12_t *net;

void ok(ncclResult_t result, const char *call)
{
	if (result != ncclSuccess)
		die("%s returned %d", call, (int)result);
}

void net_register(struct conn *c, void *data, size_t size)
{
	struct half *h = c->half;

	ok(net->regMr(h->comm, data, size, NCCL_PTR_HOST, &h->mhandle), "regMr");
}

bool net_isend(struct conn *c, void *data, size_t size, uint64_t *request)
{
	struct half *h = c->half;
	void *r = NULL;

	ok(net->isend(h->comm, data, size, TAG, h->mhandle, NULL, &r), "isend");
	*request = (uint64_t)r;
	return r != NULL;
}

bool net_irecv(struct conn *c, void *data, size_t size, uint64_t *request)
{
	struct half *h = c->half;
	void *r = NULL;
	int tag = TAG;

	ok(net->irecv(h->comm, 1, &data, &size, &tag, &h->mhandle, NULL, &r), "irecv");
	*request = (uint64_t)r;
	return r != NULL;
}

bool net_test(struct conn *c, uint64_t request)
{
	int done = 0;

	(void)c;
	ok(net->test((void *)request, &done, NULL), "test");
	return done != 0;
}
