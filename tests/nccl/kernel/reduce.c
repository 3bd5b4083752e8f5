// The arithmetic of elements.
#include <math.h>
#include <string.h>
#include "kernel.h"
#include "../gpu/gpu.h"

size_t type_size(ncclDataType_t type) {
	static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
	return sizes[type];
}

// A float of some bits: sign, then exponent, then mantissa.
struct format {
	int exponent, mantissa;
	bool infinite; // its greatest exponent is infinity and NaN; without, only all ones is NaN
};

static const struct format half = {5, 10, true}, bfloat = {8, 7, true}, e4m3 = {4, 3, false}, e5m2 = {5, 2, true};

static float widen(unsigned bits, struct format f) {
	unsigned mantissa = bits & ((1u << f.mantissa) - 1), exponent = bits >> f.mantissa & ((1u << f.exponent) - 1);
	int bias = (1 << (f.exponent - 1)) - 1;
	unsigned top = (1u << f.exponent) - 1;
	float v;
	if (exponent == top && (f.infinite || mantissa == (1u << f.mantissa) - 1))
		v = f.infinite && !mantissa ? INFINITY : NAN;
	else if (exponent == 0)
		v = ldexpf((float)mantissa, 1 - bias - f.mantissa);
	else
		v = ldexpf((float)(mantissa | 1u << f.mantissa), (int)exponent - bias - f.mantissa);
	return bits >> (f.mantissa + f.exponent) & 1 ? -v : v;
}

static unsigned narrow(float v, struct format f) {
	unsigned sign = signbit(v) ? 1u << (f.mantissa + f.exponent) : 0;
	unsigned ones = (1u << (f.mantissa + f.exponent)) - 1, greatest = f.infinite ? ones & ~((1u << f.mantissa) - 1) : ones - 1;
	if (isnan(v)) return sign | ones;
	if (isinf(v)) return sign | greatest;
	int least_exponent = 2 - (1 << (f.exponent - 1)), exponent;
	frexpf(v, &exponent);
	if (--exponent < least_exponent) exponent = least_exponent;
	// The bit before the point adds 1 to the exponent's field, and so does rounding up over its end.
	unsigned bits = ((unsigned)(exponent - least_exponent) << f.mantissa) + (unsigned)nearbyintf(ldexpf(fabsf(v), f.mantissa - exponent));
	return sign | (bits > greatest ? greatest : bits);
}

static double real(const void *p, ncclDataType_t type) {
	uint16_t two;
	uint8_t one;
	float f;
	double d;
	switch ((int)type) {
	case ncclFloat16: memcpy(&two, p, 2); return widen(two, half);
	case 9: memcpy(&two, p, 2); return widen(two, bfloat);
	case 10: memcpy(&one, p, 1); return widen(one, e4m3);
	case 11: memcpy(&one, p, 1); return widen(one, e5m2);
	case ncclFloat32: memcpy(&f, p, 4); return f;
	default: memcpy(&d, p, 8); return d;
	}
}

static void set_real(void *p, ncclDataType_t type, double v) {
	uint16_t two;
	uint8_t one;
	float f;
	switch ((int)type) {
	case ncclFloat16: two = (uint16_t)narrow((float)v, half); memcpy(p, &two, 2); return;
	case 9: two = (uint16_t)narrow((float)v, bfloat); memcpy(p, &two, 2); return;
	case 10: one = (uint8_t)narrow((float)v, e4m3); memcpy(p, &one, 1); return;
	case 11: one = (uint8_t)narrow((float)v, e5m2); memcpy(p, &one, 1); return;
	case ncclFloat32: f = (float)v; memcpy(p, &f, 4); return;
	default: memcpy(p, &v, 8);
	}
}

// Integers are handled as unsigned ones of their size: sums and products are the same, the least and greatest are found with
// a mask that makes the order unsigned.
static uint64_t whole(const void *p, size_t size) {
	uint64_t v = 0;
	memcpy(&v, p, size); // little-endian, as all of NCCL's machines are
	return v;
}

uint64_t type_load(ncclDataType_t type, const void *p) {
	return whole(gpu_reach(p), type_size(type));
}

static bool is_real(ncclDataType_t type) {
	return type >= ncclFloat16;
}

static void merge(const struct reduction *r, size_t size, char *into, const char *from) {
	if (is_real(r->type)) {
		double a = real(into, r->type), b = real(from, r->type);
		switch (r->operation) {
		case PROD: a *= b; break;
		case MIN_MAX: a = r->arg & 1 ? fmax(a, b) : fmin(a, b); break;
		default: a += b;
		}
		set_real(into, r->type, a);
		return;
	}
	uint64_t a = whole(into, size), b = whole(from, size);
	uint64_t bits = size == 8 ? UINT64_MAX : (1ull << 8 * size) - 1;
	switch (r->operation) {
	case PROD: a *= b; break;
	case MIN_MAX: a = ((a ^ r->arg) & bits) < ((b ^ r->arg) & bits) ? a : b; break;
	default: a += b;
	}
	memcpy(into, &a, size);
}

static void scale(const struct reduction *r, size_t size, char *p) {
	if (is_real(r->type)) {
		set_real(p, r->type, real(p, r->type) * real(&r->arg, r->type));
		return;
	}
	uint64_t v = whole(p, size) * whole(&r->arg, size);
	memcpy(p, &v, size);
}

static void divide(const struct reduction *r, size_t size, char *p) {
	uint64_t v = whole(p, size), divisor = average_divisor(r->arg);
	if (average_signed(r->arg, r->type)) {
		int shift = 64 - 8 * (int)size;
		v = (uint64_t)((int64_t)(v << shift) >> shift);
		v = (uint64_t)((int64_t)v / (int64_t)divisor);
	} else {
		v /= divisor;
	}
	memcpy(p, &v, size);
}

// The sum of floats is what nearly all work is: the compiler makes vectors of it.
static void add_floats(float *restrict into, const float *restrict from, size_t n) {
	for (size_t i = 0; i < n; i++) into[i] += from[i];
}

static void reduce_block(const struct reduction *r, size_t size, char *block, const char *const *from, int froms, size_t n, bool pre, bool post) {
	memcpy(block, from[0], n * size);
	if (pre && r->operation == PRE_MUL_SUM)
		for (size_t i = 0; i < n; i++) scale(r, size, block + i * size);
	for (int f = 1; f < froms; f++) {
		bool adds = r->operation != PROD && r->operation != MIN_MAX;
		if (r->type == ncclFloat32 && adds && (uintptr_t)from[f] % 4 == 0)
			add_floats((float *)(void *)block, (const float *)(const void *)from[f], n);
		else
			for (size_t i = 0; i < n; i++) merge(r, size, block + i * size, from[f] + i * size);
	}
	if (post && r->operation == SUM_POST_DIV)
		for (size_t i = 0; i < n; i++) divide(r, size, block + i * size);
}

void combine(const struct reduction *r, char *const *to_at, int tos, const char *const *from_at, int froms, size_t n, bool pre, bool post) {
	size_t size = type_size(r->type);
	char *to[FAN + 1];
	const char *from[FAN + 1];
	for (int t = 0; t < tos; t++) to[t] = gpu_reach(to_at[t]);
	for (int f = 0; f < froms; f++) from[f] = gpu_reach(from_at[f]);
	if (froms == 1 && !(pre && r->operation == PRE_MUL_SUM) && !(post && r->operation == SUM_POST_DIV)) {
		for (int t = 0; t < tos; t++)
			if (to[t] != from[0]) memmove(to[t], from[0], n * size);
		return;
	}
	char block[4096] __attribute__((aligned(16)));
	for (size_t at = 0, some; at < n; at += some) {
		some = least(n - at, sizeof block / size);
		const char *sources[FAN + 1];
		for (int f = 0; f < froms; f++) sources[f] = from[f] + at * size;
		reduce_block(r, size, block, sources, froms, some, pre, post);
		for (int t = 0; t < tos; t++) memcpy(to[t] + at * size, block, some * size);
	}
}
