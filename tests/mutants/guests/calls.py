"""Prints the filters' action for every system call, and for every value of an argument that they check.

No call is made. The supervisor's own process has a filter that answers `TOLD` to every call with `MARK` in the upper
bits of its sixth argument. Of two answers, the kernel prefers the jail's error to `TOLD`, and `TOLD` to the jail's
permission. So the guest can test even calls that would stop the machine. Calls that the jail refuses by its supervisor
get `ENOSYS` there in place of `TOLD`, which the kernel would prefer to the supervisor's answer.
"""

import ctypes
import errno

MARK = 0x5A5AF000
TOLD = 4000
# Listed by their x86_64 numbers.
REFUSED_BY_SUPERVISOR = {
    *(29, 41, 56, 64, 68, 101, 161, 165, 166, 240, 253, 272, 275, 276, 294, 308, 310, 311, 319),
    *(321, 322, 323),
    *(425, 429, 430, 431, 432, 442),
}

syscall = ctypes.CDLL(None, use_errno=True).syscall
syscall.restype = ctypes.c_long
syscall.argtypes = [ctypes.c_long] + [ctypes.c_ulong] * 6


def answer(number, *arguments):
    ctypes.set_errno(0)
    padded = (list(arguments) + [0] * 6)[:6]
    padded[5] |= MARK
    if syscall(number, *padded) >= 0:
        return "made"
    found = ctypes.get_errno()
    told = errno.ENOSYS if number in REFUSED_BY_SUPERVISOR else TOLD
    return "let" if found == told else errno.errorcode.get(found, str(found))


def spans(numbers):
    """Formats 1 2 3 7 as "1-3 7"."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(f"{a:#x}" if a == b else f"{a:#x}-{b:#x}" for a, b in found)


def tell(title, answers):
    for kind in sorted(set(answers.values())):
        print(title, kind, spans(sorted(key for key in answers if answers[key] == kind)))


def tell_argument(name, number, index, values, others=0):
    answers, beyond = {}, {}
    for value in values:
        arguments = [others] * 6
        arguments[index] = value
        answers[value] = answer(number, *arguments)
        # The kernel ignores the upper half of these. A filter that checked it could be bypassed.
        arguments[index] |= 1 << 32
        beyond[value] = answer(number, *arguments)
    tell(f"{name} {index}", answers)
    if beyond != answers:
        tell(f"{name} {index} with more than 32 bits", beyond)


def bits(*more):
    return sorted({0, 0xFFFFFFFF, *(1 << bit for bit in range(32)), *more})


# Possible arguments by x86_64 system call number.
ARGUMENTS = [
    ("mmap", 9, 3, bits(0x22, 0x40022)),
    ("madvise", 28, 2, range(0, 120)),
    ("ioctl", 16, 1, [*range(0x5400, 0x5480), 0x40049409, 0x4020940D, 0x802C542A, *range(0x402C542B, 0x402C542E),
                      0x80045439, 0x4B3A]),
    ("socket", 41, 0, range(0, 64)),
    ("socketpair", 53, 0, range(0, 64)),
    ("sendto", 44, 3, bits()),
    ("sendmsg", 46, 2, bits()),
    ("sendmmsg", 307, 3, bits()),
    ("setsockopt", 54, 2, range(0, 100)),
    ("clone", 56, 0, bits(17, 0x11, 0x1200011, 0x3D0F00, 0x10000011)),
    ("prctl", 157, 0, [*range(0, 90), 0x53564D41, 0x59616D61]),
    ("personality", 135, 0, bits(8)),
    ("futex", 202, 1, [*range(0, 32), *range(128, 160), *range(256, 288), *range(384, 416), 512]),
    ("memfd_create", 319, 1, range(0, 64)),
    ("fcntl", 72, 1, [*range(0, 40), *range(1024, 1060)]),
    ("fadvise64", 221, 3, range(0, 8)),
    ("preadv2", 327, 5, [0, *(1 << bit for bit in range(12))]),
    ("prlimit64", 302, 0, [0, 1, 2, 3, 1000, 0xFFFFFFFF]),
    ("sched_setscheduler", 144, 1, [*range(0, 8), 0x40000000, 0xFFFFFFFF]),
]

# Calls that set ids, with their number and how many ids each takes.
OWN_ID = 1000
IDENTITY = [
    ("setuid", 105, 1),
    ("setgid", 106, 1),
    ("setreuid", 113, 2),
    ("setregid", 114, 2),
    ("setresuid", 117, 3),
    ("setresgid", 119, 3),
    ("setfsuid", 122, 1),
    ("setfsgid", 123, 1),
]

# uretprobe and uprobe: only the kernel's own trampolines may make them, and no filter sees them.
UNASKED = 335, 336

tell("call", {number: answer(number) for number in range(0, 640) if number not in UNASKED})
tell("call of x32", {0x40000000 + number: answer(0x40000000 + number) for number in range(0, 560)})
for name, number, index, values in ARGUMENTS:
    tell_argument(name, number, index, values)
for name, number, count in IDENTITY:
    for index in range(count):
        tell_argument(name, number, index, bits(OWN_ID - 1, OWN_ID, OWN_ID + 1), OWN_ID)
