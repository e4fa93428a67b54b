# The harness puts a dictionary VARS and then this file before every probe. A probe prints a line that
# starts with ESCAPED if its attempt succeeded, otherwise one with CONTAINED and the reason.
import errno
import os
import sys


def var(name, default=""):
    return str((globals().get("VARS") or os.environ).get(name, default))


def contained(reason=""):
    print("CONTAINED", reason, flush=True)


def escaped(how=""):
    print("ESCAPED", how, flush=True)


def number(x86_64, aarch64):
    return x86_64 if os.uname().machine == "x86_64" else aarch64


def syscall(call, *arguments):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(call), *words)
    return result, ctypes.get_errno()


def checked(call, *arguments):
    result, code = syscall(call, *arguments)
    if result < 0:
        raise OSError(code, errno_name(code))
    return result


def errno_name(code):
    return errno.errorcode.get(code, str(code))


def run(attempt):
    try:
        attempt()
    except BaseException as error:
        contained(type(error).__name__ + ": " + str(error)[:120])


def tenants(*stages):
    """Runs the stage of this run: the first tenant's, the second tenant's, or the first tenant's again."""
    run(stages[int(var("RUN", "1")) - 1])


def compare_with_previous(value):
    """For values that must differ between runs."""
    print("VALUE " + value)
    if var("PREV") == value:
        escaped("same as the previous run")
    else:
        contained("differs or first run")


def address_of_version():
    """The address of the text of `sys.version`: in a worker the same as in its zygote."""
    import ctypes

    head = ctypes.string_at(id(sys.version), 96)
    return id(sys.version) + head.index(sys.version[:8].encode())


def mapped_pages():
    """The bytes of each page near known addresses in every kind of memory, found without /proc."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_size_t
    size, around = 4096, (16 << 20) // 4096
    known = [
        id(object()),
        libc.sbrk(0) - 1,
        ctypes.addressof(ctypes.c_char.in_dll(libc, "environ")),
        ctypes.c_size_t.in_dll(libc, "environ").value,
        ctypes.cast(libc.getpid, ctypes.c_void_p).value,
    ]
    numbers = {
        page
        for address in known
        for page in range(address // size - around, address // size + around)
    }
    for page in sorted(numbers):
        # access(2) fails with EFAULT if the address is not mapped, otherwise it reads a path there.
        if libc.access(ctypes.c_void_p(page * size), 0) == 0 or ctypes.get_errno() != errno.EFAULT:
            yield ctypes.string_at(page * size, size)


def count_pages_with(head, tail):
    """Counts the pages with a text. It is given in two parts, so that the arguments do not contain it."""

    def has(page):
        place = page.find(head)
        while place >= 0 and not page.startswith(tail, place + len(head)):
            place = page.find(head, place + 1)
        return place >= 0

    return sum(map(has, mapped_pages()))


# What the first tenant keeps for its second run.
kept = globals().get("kept", {})


