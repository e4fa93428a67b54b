'''
id = "ZY-008"
name = "memory of an earlier run readable"
attempt = """
Look for the byte string left by an earlier run in own memory (/proc/self/mem over anonymous
regions)."""
severity = "critical"
proven_open = "user"
open_mode = "inproc"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["* regions, * own copies"]

[[expect]]
errno = ["ENOENT", "EACCES", "EPERM"]
why = "own memory cannot be read as a file: no /proc, or /proc is not the guest's to open"
'''

import builtins
import re

LARGEST_REGION = 256 << 20


def writable_anonymous_regions():
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            if not fields[1].startswith("rw") or (len(fields) > 5 and fields[5] != "[heap]"):
                continue
            start, end = [int(address, 16) for address in fields[0].split("-")]
            if end - start <= LARGEST_REGION:
                yield start, end


def attempt():
    # In two halves, so that the program's own text does not match.
    tag = b"H_SEC" + b"_RESIDUE_"
    kept = bytearray(tag + b"A" * 32)
    regions = 0
    copies = 0
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    for start, end in writable_anonymous_regions():
        try:
            data = os.pread(memory, end - start, start)
        except OSError:
            continue
        copies += len(re.findall(re.escape(tag) + b"A{32}", data))
        regions += 1
        del data
    previous = var("PREV")
    print("VALUE %d" % copies)
    builtins.sandfork_kept = getattr(builtins, "sandfork_kept", []) + [bytes(kept)]
    if previous and copies > int(previous):
        escaped("residue count grew %s -> %d" % (previous, copies))
    else:
        contained("%d regions, %d own copies" % (regions, copies))


run(attempt)
