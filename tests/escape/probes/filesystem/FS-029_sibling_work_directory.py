'''
id = "FS-029"
name = "sibling work directories readable"
attempt = "List the parent of the work directory and read a sibling run's file."
severity = "critical"
proven_open = "user"

[[expect]]
text = ["no sibling"]

[[expect]]
errno = ["EACCES"]
why = "the parent is the private root, which Landlock need not let the guest list"
'''


def attempt():
    for directory in os.listdir(".."):
        path = os.path.join("..", directory, "sibling_secret")
        try:
            with open(path) as file:
                if file.read().startswith("CANARY"):
                    return escaped("read " + path)
        except OSError:
            pass
    contained("no sibling")


run(attempt)
