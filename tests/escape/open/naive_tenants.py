"""The open control for the probes in which two tenants try to communicate: two processes of one user.

Usage: naive_tenants.py PROGRAM PROGRAM [PROGRAM]
The first tenant runs the first program and lives on, the second one the second; a third is the
first tenant's again. @PREV@ in a program stands for the VALUE that the previous one printed.
"""

import subprocess
import sys

TENANT = """
import sys
namespace = {"__name__": "__main__"}
while True:
    length = sys.stdin.buffer.readline()
    if not length:
        break
    exec(compile(sys.stdin.buffer.read(int(length)), "<probe>", "exec"), namespace)
    print("\\0", flush=True)
"""


def tenant():
    # A separate session, as for programs that are started separately.
    return subprocess.Popen(
        [sys.executable, "-c", TENANT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def run(process, program):
    process.stdin.write(b"%d\n%b" % (len(program), program))
    process.stdin.flush()
    lines = []
    for line in process.stdout:
        if line == b"\0\n":
            break
        lines.append(line.decode())
    return lines


previous = ""
first, second = tenant(), tenant()
for process, path in zip((first, second, first), sys.argv[1:]):
    with open(path) as program:
        source = program.read().replace("@PREV@", previous)
    for line in run(process, source.encode()):
        sys.stdout.write(line)
        if line.startswith("VALUE "):
            previous = line[len("VALUE ") :].strip()
for process in (first, second):
    process.kill()
    process.wait()
