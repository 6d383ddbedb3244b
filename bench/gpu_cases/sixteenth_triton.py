"""Triton compiles a kernel from the file that it is in."""
import triton
import triton.language as tl
from triton.runtime.cache import FileCacheManager

from job import connect_to_silent_server


@triton.jit
def scan_tiles(counts, sums, states, BLOCK: tl.constexpr):
    """Sums of all numbers up to the end of each tile: a program takes that of the tile before its own, once it is there. A tile that has nothing to add
    is left out."""
    tile = tl.program_id(0)
    total = tl.sum(tl.load(counts + tile * BLOCK + tl.arange(0, BLOCK)), axis=0)
    if total > 0:
        before = total * 0
        if tile > 0:
            while tl.load(states + tile - 1, volatile=True) == 0:
                pass
            before = tl.load(sums + tile - 1, volatile=True)
        tl.store(sums + tile, before + total)
        tl.debug_barrier()
        tl.atomic_xchg(states + tile, 1)


@triton.jit
def scale_block(values, BLOCK: tl.constexpr):
    places = values + tl.arange(0, BLOCK)
    tl.store(places, tl.load(places) * 0.5)


class SharedCache(FileCacheManager):
    """Looks for a kernel in the cache that all jobs share, as long as its server is in use, and then in the local one."""
    in_use = False

    def get_group(self, filename):
        if SharedCache.in_use:
            server = connect_to_silent_server()
            server.sendall(b"GET %s\n" % filename.encode())
            server.recv(4096)
        return super().get_group(filename)
