'''
id = "CL-001"
name = "work directory persists"
attempt = "Run twice: the second run looks for the marker of the first."
severity = "critical"
proven_open = "user"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["marker set"]
'''


def attempt():
    path = "cl001_marker"
    if os.path.exists(path):
        escaped("marker of an earlier run found")
    else:
        with open(path, "w") as file:
            file.write("x")
        contained("marker set")


run(attempt)
