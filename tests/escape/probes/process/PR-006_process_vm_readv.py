'''
id = "PR-006"
name = "process_vm_readv of another process"
attempt = "Read 16 bytes of the victim (or, if not visible, of self) by process_vm_readv."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "ESRCH", "EPERM"]

[[expect]]
text = ["victim maps not readable"]
'''

import ctypes


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def attempt():
    victim = int(var("VICTIM_PID", "0"))
    try:
        with open("/proc/%d/maps" % victim) as maps:
            address = int(maps.readline().split("-")[0], 16)
    except OSError:
        return contained("victim maps not readable")
    buffer = ctypes.create_string_buffer(16)
    local = Iovec(ctypes.addressof(buffer), 16)
    remote = Iovec(address, 16)
    result, code = syscall(
        number(310, 270), victim, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0
    )
    if result > 0:
        escaped("read %r" % buffer.raw[:4])
    else:
        contained(errno_name(code))


run(attempt)
