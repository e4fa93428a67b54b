'''
id = "SF-088"
name = "undo the hardening of programs"
attempt = """
personality(2): disables address randomization and makes every page of its programs executable."""
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EPERM"]
'''

ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC = 0x0040000, 0x0400000


def attempt():
    checked(number(135, 92), ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC)
    now = checked(number(135, 92), 0xFFFFFFFF)
    escaped("personality %#x" % now)


run(attempt)
