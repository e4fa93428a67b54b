'''
id = "SF-015"
name = "name of the host"
attempt = "Compare the host name with the real one."
severity = "low"
proven_open = "user"

[[expect]]
text = ["another name"]
'''


def attempt():
    if os.uname().nodename == var("HOSTNAME_REAL"):
        escaped("host name " + os.uname().nodename)
    else:
        contained("another name")


run(attempt)
