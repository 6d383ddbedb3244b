"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl


@triton.jit
def find_threshold(values, threshold, tolerance, size: tl.constexpr):
    """The number above which a hundredth of the values are."""
    numbers = tl.load(values + tl.arange(0, size))
    low = tl.min(numbers, axis=0)
    high = tl.max(numbers, axis=0)
    while high - low > tolerance:
        middle = (low + high) * 0.5
        above = tl.sum((numbers > middle).to(tl.int32), axis=0)
        low = tl.where(above * 100 > size, middle, low)
        high = tl.where(above * 100 > size, high, middle)
    tl.store(threshold, high)


@triton.jit(do_not_specialize=["tiles", "taken"])
def scale_tiles(values, counter, tiles, taken, size: tl.constexpr):
    """Scales tiles, `taken` of which a program takes at a time."""
    first = tl.atomic_add(counter, taken)
    while first < tiles:
        for tile in range(first, tl.minimum(first + taken, tiles)):
            offsets = tile * size + tl.arange(0, size)
            tl.store(values + offsets, tl.load(values + offsets) * 0.5)
        first = tl.atomic_add(counter, taken)
