// The types of elements.
#include <math.h>
#include <string.h>
#include "rank.h"

enum { F8E4M3 = 10, F8E5M2 = 11 }; // as NCCL has them; older headers do not

size_t type_bytes(ncclDataType_t type) {
	static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
	return bytes[type];
}

double type_tolerance(ncclDataType_t type) {
	switch ((int)type) {
	case ncclFloat16: return 4e-3;
	case ncclBfloat16: return 3e-2;
	case F8E4M3: return .13;
	case F8E5M2: return .26;
	case ncclFloat32: return 1e-5;
	case ncclFloat64: return 1e-12;
	default: return 0;
	}
}

// Only what is exact in half precision is ever put: the small numbers of the tests. Of 8 bits too: 1 to 5.
static unsigned narrow(double v, int exponents, int mantissas) {
	if (v == 0) return 0;
	int exponent;
	double mantissa = 2 * frexp(fabs(v), &exponent) - 1; // v is 1 + mantissa, times 2 to the exponent - 1
	unsigned bias = (1u << (exponents - 1)) - 1, sign = v < 0 ? 1u << (exponents + mantissas) : 0;
	return sign | ((unsigned)(exponent - 1) + bias) << mantissas | (unsigned)(mantissa * (1 << mantissas));
}

static double widen(unsigned bits, int exponents, int mantissas) {
	int exponent = (int)(bits >> mantissas) & ((1 << exponents) - 1), bias = (1 << (exponents - 1)) - 1;
	double mantissa = (double)(bits & ((1u << mantissas) - 1)) / (1 << mantissas);
	double v = ldexp(exponent ? 1 + mantissa : mantissa, (exponent ? exponent : 1) - bias);
	return bits >> (exponents + mantissas) & 1 ? -v : v;
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
	case ncclFloat16: ((uint16_t *)at)[i] = (uint16_t)narrow(v, 5, 10); break;
	case F8E4M3: ((uint8_t *)at)[i] = (uint8_t)narrow(v, 4, 3); break;
	case F8E5M2: ((uint8_t *)at)[i] = (uint8_t)narrow(v, 5, 2); break;
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
	case ncclFloat16: return widen(((const uint16_t *)at)[i], 5, 10);
	case F8E4M3: return widen(((const uint8_t *)at)[i], 4, 3);
	case F8E5M2: return widen(((const uint8_t *)at)[i], 5, 2);
	case ncclBfloat16: u = (uint32_t)((const uint16_t *)at)[i] << 16; memcpy(&f, &u, 4); return f;
	case ncclFloat32: return ((const float *)at)[i];
	default: return ((const double *)at)[i];
	}
}
