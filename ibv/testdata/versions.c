/* Symbols at several versions, for the test of the loader's look-up. */
int old_twice(void) { return 10; }
int new_twice(void) { return 11; }
int once(void) { return 20; }
__asm__(".symver old_twice, twice@IBVERBS_1.0");
__asm__(".symver new_twice, twice@@IBVERBS_1.1");
