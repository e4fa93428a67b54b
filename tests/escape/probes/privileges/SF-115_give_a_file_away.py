'''
id = "SF-115"
name = "give a file to root"
attempt = "chown(2) of its own file to another user."
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EPERM", "EINVAL"]
'''

def attempt():
    with open("mine", "w"):
        pass
    os.chown("mine", 7777, 7777)
    escaped("it is user %d's" % os.stat("mine").st_uid)


run(attempt)
