'''
id = "SF-148"
name = "lock a program of the host"
attempt = """
Lock a shown file. The host's programs that wait for a lock are delayed, and each close(2) of the file by
any process walks all pieces of the lock under a spinlock."""
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOLCK"]
'''

import fcntl

F_OFD_SETLK = 37


def attempt():
    with open(sys.executable, "rb") as shown:
        refused = None
        for lock in (
            lambda: fcntl.lockf(shown, fcntl.LOCK_SH),
            lambda: fcntl.flock(shown, fcntl.LOCK_SH),
            lambda: fcntl.fcntl(shown, F_OFD_SETLK, b"\0" * 32),
        ):
            try:
                lock()
            except OSError as error:
                refused = error
            else:
                return escaped("locked")
        raise refused


run(attempt)
