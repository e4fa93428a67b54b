'''
id = "SF-010"
name = "SysV shared memory of the host"
attempt = "Attach to the host's segment by its key."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EPERM", "ENOSYS"]
'''


def attempt():
    segment, code = syscall(number(29, 194), int(var("SHMKEY", "0"), 0), 0, 0)
    if segment >= 0:
        escaped("segment %d" % segment)
    else:
        contained(errno_name(code))


run(attempt)
