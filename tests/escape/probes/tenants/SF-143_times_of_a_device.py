'''
id = "SF-143"
name = "signal by the times of a device"
attempt = "Set the times of /dev/null: they are those of the host's inode, which every tenant sees."
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EROFS"]
'''


def attempt():
    os.utime("/dev/null")
    escaped("set")


run(attempt)
