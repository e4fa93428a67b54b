# A state of this many megabytes: one half is objects, the other a single block.
objects = [str(number) for number in range(megabytes * 8_000)]
block = bytearray(b"x" * (megabytes << 19))
