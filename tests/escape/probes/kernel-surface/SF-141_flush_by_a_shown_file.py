'''
id = "SF-141"
name = "have the host's disk flushed by a file that is shown"
attempt = """
fsync(2), fdatasync(2) and sync_file_range(2) of a shown file reach its disk. The probe uses a closed
descriptor: the kernel returns EBADF, and a filter that blocks the call does not."""
severity = "medium"
proven_open = "user"

[[expect]]
text = ["kept from the kernel"]
'''

import ctypes


def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    with open(os.__file__, "rb") as shown:
        descriptor = shown.fileno()
        os.fsync(descriptor)
        os.fdatasync(descriptor)
    closed = {
        "fsync": (descriptor,),
        "fdatasync": (descriptor,),
        "sync_file_range": (descriptor, ctypes.c_long(0), ctypes.c_long(0), 0),
    }
    for name, arguments in closed.items():
        if getattr(libc, name)(*arguments) != 0:
            escaped(name + " reached the kernel")
    contained("kept from the kernel")


run(attempt)
