'''
id = "SF-065"
name = "memory of an earlier run, found without /proc"
attempt = """
Look for the bytes that an earlier run left, in all memory that can be found without /proc."""
severity = "critical"
proven_open = "user"
open_mode = "inproc"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["nowhere"]
'''

import builtins
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_size_t
PAGE, AROUND = 4096, 16 << 20


def pages():
    """The mapped pages around what is known to lie in each sort of memory, found without /proc."""
    known = [
        id(object()),
        libc.sbrk(0) - 1,
        ctypes.addressof(ctypes.c_char.in_dll(libc, "environ")),
        ctypes.c_size_t.in_dll(libc, "environ").value,
        ctypes.cast(libc.getpid, ctypes.c_void_p).value,
    ]
    seen = set()
    for address in known:
        middle = address // PAGE
        for page in range(middle - AROUND // PAGE, middle + AROUND // PAGE):
            if page in seen:
                continue
            seen.add(page)
            # The kernel says EFAULT of what is no memory, and reads a path from what is.
            if libc.access(ctypes.c_void_p(page * PAGE), 0) == 0 or (
                ctypes.get_errno() != errno.EFAULT
            ):
                yield page * PAGE


def find(backwards):
    """How many pages have a text, which is given backwards so that this program does not have it."""
    return sum(ctypes.string_at(page, PAGE)[::-1].find(backwards) >= 0 for page in pages())


def attempt():
    backwards = b"nur reilrae na fo tnenimda"
    found = find(backwards)
    builtins.sandfork_left = bytes(reversed(backwards))
    if found:
        escaped("in %d pages" % found)
    else:
        contained("nowhere")


run(attempt)
