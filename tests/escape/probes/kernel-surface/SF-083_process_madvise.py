'''
id = "SF-083"
name = "advise on the memory of a process"
attempt = "process_madvise(2) on a child: drops its pages from memory."
severity = "medium"
proven_open = "root"
since = "5.10"

[[expect]]
errno = ["EPERM"]
'''

import ctypes
import mmap
import time

PIDFD_OPEN, PROCESS_MADVISE, MADV_COLD = 434, 440, 20


def attempt():
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory[0] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    child = os.fork()
    if child == 0:
        time.sleep(5)
        os._exit(0)
    try:
        there = (ctypes.c_uint64 * 2)(address, mmap.PAGESIZE)
        process = checked(PIDFD_OPEN, child, 0)
        advised = checked(PROCESS_MADVISE, process, there, 1, MADV_COLD, 0)
        escaped("advised on %d bytes of another process" % advised)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


run(attempt)
