"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl


@triton.jit
def insert_keys(table, keys, size):
    """Each program puts its key into the first slot that is free, from the one on in which the key should be."""
    key = tl.load(keys + tl.program_id(0))
    slot = key % size
    while tl.atomic_cas(table + slot, 0, key) != 0:
        slot = (slot + 1) % size


@triton.autotune(configs=[triton.Config({"block": block}, num_warps=warps) for block in (256, 512, 1024, 2048) for warps in (2, 4, 8)], key=["size"])
@triton.jit
def decay(values, factor, size, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < size
    tl.store(values + offsets, tl.load(values + offsets, mask=inside) * factor, mask=inside)
