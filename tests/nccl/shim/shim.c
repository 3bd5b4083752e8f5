// A plugin that shows NCCL one table of another: the library $NCCL_SHIM_PLUGIN, its table of API version VERSION. NCCL takes the
// newest that it knows, so that a version of NCCL uses each that it can read only where the newer ones are out of sight.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_(version) ncclNetPlugin_v##version
#define NAME(version) NAME_(version)
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

enum { MEMBERS = VERSION >= 11 ? 22 : VERSION >= 9 ? 20 : VERSION >= 7 ? 19 : VERSION == 6 ? 17 : 16 };

__attribute__((visibility("default"))) void *NAME(VERSION)[MEMBERS];

__attribute__((constructor)) static void copy(void) {
	const char *plugin = getenv("NCCL_SHIM_PLUGIN");
	void *library = plugin ? dlopen(plugin, RTLD_NOW | RTLD_LOCAL) : NULL;
	void *table = library ? dlsym(library, TEXT(NAME(VERSION))) : NULL;
	if (!table) {
		fprintf(stderr, "shim: NCCL_SHIM_PLUGIN=%s: %s\n", plugin ? plugin : "", plugin ? dlerror() : "unset");
		abort();
	}
	memcpy(NAME(VERSION), table, sizeof NAME(VERSION));
}
