'''
id = "FS-008"
name = "open_by_handle_at (Shocker)"
attempt = "name_to_handle_at on a reachable file, then open_by_handle_at with it on a mount fd."
severity = "critical"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

import ctypes


class FileHandle(ctypes.Structure):
    _fields_ = [
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("f_handle", ctypes.c_ubyte * 128),
    ]


def attempt():
    handle = FileHandle()
    handle.handle_bytes = 128
    mount_id = ctypes.c_int()
    result, code = syscall(
        number(303, 264),
        -100,
        ctypes.c_char_p(b"/"),
        ctypes.byref(handle),
        ctypes.byref(mount_id),
        0,
    )
    if result < 0:
        return contained("name_to_handle_at " + errno_name(code))
    root = os.open("/", os.O_RDONLY)
    flags = os.O_RDONLY | os.O_DIRECTORY
    result, code = syscall(number(304, 265), root, ctypes.byref(handle), flags)
    if result >= 0:
        escaped("open_by_handle_at fd %d" % result)
    else:
        contained("open_by_handle_at " + errno_name(code))


run(attempt)
