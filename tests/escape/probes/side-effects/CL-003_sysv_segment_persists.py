'''
id = "CL-003"
name = "SysV segment persists"
attempt = "Run twice: shmget with a fixed key."
severity = "medium"
proven_open = "user"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["created *"]

[[expect]]
errno = ["EPERM", "ENOSYS"]
'''

KEY = 0x5EC0003
IPC_CREAT = 0o1000
IPC_RMID = 0


def attempt():
    segment, _ = syscall(number(29, 194), KEY, 0, 0)
    if segment >= 0:
        syscall(number(31, 195), segment, IPC_RMID, 0)
        return escaped("segment of an earlier run found")
    segment, code = syscall(number(29, 194), KEY, 4096, IPC_CREAT | 0o600)
    contained("created %d" % segment if segment >= 0 else errno_name(code))


run(attempt)
