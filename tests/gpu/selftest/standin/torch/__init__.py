"""As much of PyTorch as worker.py uses, in plain Python, so that the scripts can be tested where there is none.

It computes and communicates for real, over a store like PyTorch's, and writes the log that NCCL would. STANDIN_FAULT
makes it do something wrong, as NAME or NAME=VALUE: the tests see whether the scripts notice. STANDIN_FAULT_NET keeps
that to one value of NCCL_NET.
"""

import os
import struct

__version__ = "0.0+standin"

FAULT, _, VALUE = os.environ.get("STANDIN_FAULT", "").partition("=")
if os.environ.get("NCCL_NET") not in (os.environ.get("STANDIN_FAULT_NET"), None) and "STANDIN_FAULT_NET" in os.environ:
    FAULT = VALUE = ""


class dtype:
    def __init__(self, name, code):
        self.name, self.code = name, code


int8, uint8, int32, int64 = dtype("int8", "b"), dtype("uint8", "B"), dtype("int32", "i"), dtype("int64", "q")
float16, bfloat16, float32, float64 = dtype("float16", "e"), dtype("bfloat16", "e"), dtype("float32", "f"), dtype("float64", "d")


class device:
    def __init__(self, name):
        self.type = name.split(":")[0]


class Tensor:
    """One dimension; the parent's elements when it is a part of one."""

    def __init__(self, values, kind):
        self.values, self.dtype = list(values), kind

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return Tensor(self.values[i], self.dtype)
        return Scalar(self.values[int(i)])

    def __int__(self):
        return int(self.values[0])

    def _with(self, other, f):
        others = other.values if isinstance(other, Tensor) else [other] * len(self)
        return Tensor([f(a, b) for a, b in zip(self.values, others)], self.dtype)

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    def __mod__(self, other):
        return self._with(other, lambda a, b: a % b)

    def __ne__(self, other):
        return self._with(other, lambda a, b: a != b)

    def numel(self):
        return len(self)

    def element_size(self):
        return struct.calcsize(self.dtype.code)

    def to(self, kind):
        return Tensor(self.values, kind)

    def clone(self):
        return Tensor(self.values, self.dtype)

    def repeat(self, n):
        return Tensor(self.values * n, self.dtype)

    def nonzero(self):
        return Tensor([i for i, v in enumerate(self.values) if v], int64)


class Scalar(Tensor):
    def __init__(self, value):
        super().__init__([value], int64)

    def item(self):
        return self.values[0]


def arange(n, dtype, device):
    return Tensor(range(n), dtype)


def full(shape, value, dtype, device):
    return Tensor([value] * shape[0], dtype)


def empty(n, dtype):
    return Tensor([0] * n, dtype)


def cat(tensors):
    return Tensor([v for t in tensors for v in t.values], tensors[0].dtype)


def maximum(a, b):
    return a._with(b, max)


def equal(a, b):
    return a.values == b.values


class cuda:
    class nccl:
        @staticmethod
        def version():
            return (2, 28, 9)

    class _Properties:
        total_memory = 1 << 34

    @staticmethod
    def is_available():
        return FAULT != "no-gpu"

    @staticmethod
    def get_device_name(index):
        return "stand-in"

    @staticmethod
    def get_device_properties(index):
        return cuda._Properties

    @staticmethod
    def set_device(device):
        pass

    @staticmethod
    def synchronize():
        pass
