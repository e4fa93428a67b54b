'''
id = "SF-124"
name = "run a program that it wrote"
attempt = "Copy a program into the work directory and run it there."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["EACCES", "EPERM", "ENOENT"]
'''

import subprocess


def attempt():
    with open("/bin/sh", "rb") as source, open("program", "wb") as program:
        program.write(source.read())
    os.chmod("program", 0o700)
    subprocess.run(["./program", "-c", "echo ESCAPED as a program of its own"], check=True)


run(attempt)
