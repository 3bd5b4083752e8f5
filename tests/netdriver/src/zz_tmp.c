#include "work.h"
void contract_before(struct job *j){(void)j;}
void work_contract(struct job *j){(void)j;}
