'''
id = "PR-004"
name = "ptrace a host process"
attempt = "PTRACE_SEIZE the victim, then detach."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ESRCH", "EPERM"]
'''

PTRACE_SEIZE = 0x4206
PTRACE_DETACH = 17


def attempt():
    victim = int(var("VICTIM_PID", "0"))
    result, code = syscall(number(101, 117), PTRACE_SEIZE, victim, 0, 0)
    if result == 0:
        syscall(number(101, 117), PTRACE_DETACH, victim, 0, 0)
        escaped("seized %d" % victim)
    else:
        contained(errno_name(code))


run(attempt)
