/*
 * SELFPLUGIN_FAULT=NAME[:N] breaks one rule: each time there is a chance to, or at the Nth only.
 * Names are those that fault() is called with.
 */
#ifndef SELFPLUGIN_FAULT_H
#define SELFPLUGIN_FAULT_H

#include <stdbool.h>
#include <stdint.h>

void fault_loaded(void);

/* fault: is this rule to be broken here and now? */
bool fault(const char *name);

/* fault_named: is it this rule, whenever? */
bool fault_named(const char *name);

/* fault_early_env is the environment as it was when the process started. */
const char *fault_early_env(const char *name);

/* fault_touch_later writes to memory from a thread: each millisecond until it has gone, or once, when it has gone. */
void fault_touch_later(void *memory, bool gone);

uint64_t fault_now(void);

#endif
