'''
id = "RS-001"
name = "memory limit"
attempt = "Touch MEM_MB (default 320) MiB in 16 MiB steps."
severity = "critical"
proven_open = "user"

[[expect]]
exception = ["MemoryError"]

[[expect]]
status = ["memory-limit"]
exception = ["MemoryError"]
'''


def attempt():
    kept = []
    for _ in range(int(var("MEM_MB", "320")) // 16):
        block = bytearray(16 << 20)
        block[::4096] = b"x" * len(block[::4096])
        kept.append(block)
    escaped("%d MiB resident" % (16 * len(kept)))


run(attempt)
