'''
id = "SF-086"
name = "system calls of 32 bits"
attempt = "Make a system call through int 0x80, where the numbers mean other calls."
severity = "critical"
proven_open = "user"
needs = ["ia32"]

[[expect]]
status = ["signal", "denied"]
'''

import ctypes
import mmap

# mov eax, 20 (getpid of 32 bits); int 0x80; ret
CODE = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"


def attempt():
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(CODE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    answer = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if answer == os.getpid():
        escaped("getpid answered %d" % answer)
    else:
        contained("answered %d" % answer)


run(attempt)
