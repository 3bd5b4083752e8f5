// The types of elements.
#include <string.h>
#include "rank.h"

size_t type_bytes(ncclDataType_t type) {
	static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
	return bytes[type];
}

double type_tolerance(ncclDataType_t type) {
	switch ((int)type) {
	case ncclFloat16: return 4e-3;
	case ncclBfloat16: return 3e-2;
	case ncclFloat32: return 1e-5;
	case ncclFloat64: return 1e-12;
	default: return 0;
	}
}

// Only what is exact in half precision is ever put: the small numbers of the tests.
static uint16_t half(double v) {
	float f = (float)v;
	uint32_t u;
	memcpy(&u, &f, 4);
	if (v == 0) return 0;
	int exponent = (int)(u >> 23 & 255) - 127 + 15;
	return (uint16_t)(u >> 31 << 15 | (uint32_t)exponent << 10 | (u >> 13 & 1023));
}

static double unhalf(uint16_t h) {
	uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
	double v = exponent ? 1 + mantissa / 1024. : mantissa / 1024.;
	for (int e = (int)(exponent ? exponent : 1) - 15; e; e += e < 0 ? 1 : -1) v = e < 0 ? v / 2 : v * 2;
	return h >> 15 ? -v : v;
}

void type_put(ncclDataType_t type, void *at, size_t i, double v) {
	float f = (float)v;
	uint32_t u;
	memcpy(&u, &f, 4);
	switch ((int)type) {
	case ncclInt8: ((int8_t *)at)[i] = (int8_t)v; break;
	case ncclUint8: ((uint8_t *)at)[i] = (uint8_t)v; break;
	case ncclInt32: ((int32_t *)at)[i] = (int32_t)v; break;
	case ncclUint32: ((uint32_t *)at)[i] = (uint32_t)v; break;
	case ncclInt64: ((int64_t *)at)[i] = (int64_t)v; break;
	case ncclUint64: ((uint64_t *)at)[i] = (uint64_t)v; break;
	case ncclFloat16: ((uint16_t *)at)[i] = half(v); break;
	case ncclBfloat16: ((uint16_t *)at)[i] = (uint16_t)(u >> 16); break;
	case ncclFloat32: ((float *)at)[i] = f; break;
	default: ((double *)at)[i] = v;
	}
}

double type_get(ncclDataType_t type, const void *at, size_t i) {
	uint32_t u;
	float f;
	switch ((int)type) {
	case ncclInt8: return ((const int8_t *)at)[i];
	case ncclUint8: return ((const uint8_t *)at)[i];
	case ncclInt32: return ((const int32_t *)at)[i];
	case ncclUint32: return ((const uint32_t *)at)[i];
	case ncclInt64: return (double)((const int64_t *)at)[i];
	case ncclUint64: return (double)((const uint64_t *)at)[i];
	case ncclFloat16: return unhalf(((const uint16_t *)at)[i]);
	case ncclBfloat16: u = (uint32_t)((const uint16_t *)at)[i] << 16; memcpy(&f, &u, 4); return f;
	case ncclFloat32: return ((const float *)at)[i];
	default: return ((const double *)at)[i];
	}
}
