'''
id = "KS-019"
name = "new system calls are denied by default"
attempt = """
Try numbers 444..520 with zero arguments; list those not answered by ENOSYS/EPERM, apart from
the allow-list."""
severity = "high"
proven_open = "user"
needs = ["new-system-calls"]

[[expect]]
text = ["all refused"]
'''

# landlock_*, futex_waitv, fchmodat2, futex_wake, futex_wait: an allow-list may contain them.
ALLOWED = {444, 445, 446, 449, 452, 454, 455}
MEMFD_SECRET = 447
# process_mrelease and mseal say nothing here: zero arguments are valid, or invalid even without a filter.
LEFT_OUT = (448, 462)


def attempt():
    answered = []
    for call in range(444, 521):
        if call in LEFT_OUT:
            continue
        result, code = syscall(call, 0, 0, 0, 0, 0, 0)
        if call == MEMFD_SECRET and result >= 0:
            answered.append(call)
        elif result >= 0 or code not in (errno.ENOSYS, errno.EPERM):
            answered.append(call)
    unexpected = [call for call in answered if call not in ALLOWED]
    if unexpected:
        escaped("numbers %s" % unexpected)
    else:
        contained("all refused")


run(attempt)
