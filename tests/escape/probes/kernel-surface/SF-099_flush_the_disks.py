'''
id = "SF-099"
name = "have the host's disks flushed"
attempt = "syncfs(2) of its own descriptor: every user of the file system waits."
severity = "low"
proven_open = "user"

[[expect]]
errno = ["EPERM"]
'''

def attempt():
    here = os.open(".", os.O_RDONLY)
    checked(number(306, 267), here)
    escaped("flushed")


run(attempt)
