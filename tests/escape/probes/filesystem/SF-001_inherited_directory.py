'''
id = "SF-001"
name = "inherited directory descriptor"
attempt = """
Open the canary relative to every descriptor above 2: the launcher held its directory open."""
severity = "critical"
proven_open = "user"

[[expect]]
text = ["none"]
'''


def attempt():
    name = os.path.basename(var("CANARY"))
    for fd in range(3, 1 << 16):
        try:
            with open(os.open(name, os.O_RDONLY, dir_fd=fd)) as file:
                if file.read().startswith("CANARY"):
                    return escaped("through descriptor %d" % fd)
        except OSError:
            pass
    contained("none")


run(attempt)
