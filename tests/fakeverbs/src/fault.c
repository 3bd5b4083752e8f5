/* Faults that are switched on in the shared state. */
#include "fake.h"

#include <signal.h>

static bool matches(const struct shm_rule *r, int port, uint32_t qpn)
{
	if (r->node != NONE && r->node != fake.node)
		return false;
	if (r->port != NONE && r->port != port)
		return false;
	return r->qpn == NONE || (uint32_t)r->qpn == qpn;
}

/* Counts the occasion; true when the rule strikes on it. */
static bool strikes(struct shm_rule *r)
{
	int64_t left;

	if (atomic_load(&r->skip) > 0 && atomic_fetch_sub(&r->skip, 1) > 0)
		return false;
	left = atomic_load(&r->times);
	while (left > 0)
		if (atomic_compare_exchange_weak(&r->times, &left, left - 1))
			return true;
	return left < 0;
}

static struct shm_rule *find(enum rule_kind kind, int port, uint32_t qpn, uint32_t verb)
{
	if (atomic_load_explicit(&shm->rules, memory_order_relaxed) == 0)
		return NULL;
	for (int i = 0; i < MAX_RULES; i++) {
		struct shm_rule *r = &shm->rule[i];

		if (atomic_load(&r->kind) == kind && (r->verb == VERBS || r->verb == verb) && matches(r, port, qpn) && strikes(r))
			return r;
	}
	return NULL;
}

int fault_verb(enum verb v, int port)
{
	const struct shm_rule *r;

	if (find(RULE_DIE, port, 0, v))
		raise(SIGKILL);
	if (find(RULE_HALT, port, 0, v))
		raise(SIGSTOP);
	r = find(RULE_VERB, port, 0, v);
	return r ? (int)r->value : 0;
}

enum ibv_wc_status fault_wr(int port, uint32_t qpn)
{
	const struct shm_rule *r = find(RULE_WR, port, qpn, 0);

	return r ? (enum ibv_wc_status)r->value : IBV_WC_SUCCESS;
}

bool fault_hits(enum rule_kind kind, int port, uint32_t qpn)
{
	return find(kind, port, qpn, 0) != NULL;
}

bool fault_reg(uint64_t registered, uint64_t length)
{
	if (atomic_load_explicit(&shm->rules, memory_order_relaxed) == 0)
		return false;
	for (int i = 0; i < MAX_RULES; i++) {
		struct shm_rule *r = &shm->rule[i];

		if (atomic_load(&r->kind) == RULE_REG && matches(r, NONE, 0) && registered + length > r->amount && strikes(r))
			return true;
	}
	return false;
}

uint64_t fault_late(int port, uint32_t qpn)
{
	const struct shm_rule *r = find(RULE_LATE, port, qpn, 0);

	return r ? r->amount : 0;
}

uint64_t fault_slow(int port, uint32_t qpn)
{
	const struct shm_rule *r = find(RULE_SLOW, port, qpn, 0);

	return r ? r->amount : 0;
}
