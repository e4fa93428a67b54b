'''
id = "SF-034"
name = "meet at System V semaphores"
attempt = "One tenant sets a semaphore that it created by key, and the other reads its value."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["EPERM"]
'''

KEY = 0x5F034000 | os.getuid() & 0xFFF
SEMGET, SEMCTL = number(64, 190), number(66, 191)
IPC_CREAT, IPC_RMID, GETVAL, SETVAL = 0o1000, 0, 12, 16


def hold():
    semaphore = checked(SEMGET, KEY, 1, IPC_CREAT | 0o600)
    checked(SEMCTL, semaphore, 0, SETVAL, 34)
    contained("holds")


def visit():
    semaphore = checked(SEMGET, KEY, 1, 0)
    value = checked(SEMCTL, semaphore, 0, GETVAL, 0)
    checked(SEMCTL, semaphore, 0, IPC_RMID, 0)
    escaped("read %d" % value)


tenants(hold, visit)
