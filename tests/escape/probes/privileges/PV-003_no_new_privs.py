'''
id = "PV-003"
name = "no_new_privs"
attempt = "prctl(PR_GET_NO_NEW_PRIVS)."
severity = "critical"
proven_open = "user"

[[expect]]
text = ["no_new_privs=1"]
'''

PR_GET_NO_NEW_PRIVS = 39


def attempt():
    result, code = syscall(number(157, 167), PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
    if result == 0:
        escaped("no_new_privs=0")
    elif result < 0:
        contained("prctl " + errno_name(code))
    else:
        contained("no_new_privs=%d" % result)


run(attempt)
