'''
id = "PV-001"
name = "capabilities held"
attempt = "Any bit in CapEff, CapPrm, CapInh, CapAmb."
severity = "critical"
proven_open = "root"

[[expect]]
text = ["all zero"]
'''

import ctypes

LINUX_CAPABILITY_VERSION_3 = 0x20080522


def attempt():
    header = (ctypes.c_uint * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint * 6)()
    result, code = syscall(number(125, 90), ctypes.byref(header), ctypes.byref(data))
    if result:
        return contained("capget " + errno_name(code))
    if any(data):
        escaped("caps %x" % (data[0] | data[1] | data[2] | data[3] | data[4] | data[5]))
    else:
        contained("all zero")


run(attempt)
