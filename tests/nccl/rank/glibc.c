// What objects that were compiled against a newer C library call, by the names that this one has.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

long __isoc23_strtol(const char *text, char **end, int base);
long long __isoc23_strtoll(const char *text, char **end, int base);
unsigned long __isoc23_strtoul(const char *text, char **end, int base);
unsigned long long __isoc23_strtoull(const char *text, char **end, int base);
int __isoc23_sscanf(const char *text, const char *format, ...);
int __isoc23_fscanf(FILE *file, const char *format, ...);

// Weak: a C library that has them is as good.
#define WEAK __attribute__((weak))

WEAK long __isoc23_strtol(const char *text, char **end, int base) {
	return strtol(text, end, base);
}

WEAK long long __isoc23_strtoll(const char *text, char **end, int base) {
	return strtoll(text, end, base);
}

WEAK unsigned long __isoc23_strtoul(const char *text, char **end, int base) {
	return strtoul(text, end, base);
}

WEAK unsigned long long __isoc23_strtoull(const char *text, char **end, int base) {
	return strtoull(text, end, base);
}

WEAK int __isoc23_sscanf(const char *text, const char *format, ...) {
	va_list args;
	va_start(args, format);
	int n = vsscanf(text, format, args);
	va_end(args);
	return n;
}

WEAK int __isoc23_fscanf(FILE *file, const char *format, ...) {
	va_list args;
	va_start(args, format);
	int n = vfscanf(file, format, args);
	va_end(args);
	return n;
}
