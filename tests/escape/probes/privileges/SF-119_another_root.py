'''
id = "SF-119"
name = "another root, and out of it"
attempt = "chroot(2) into its own directory, with an open descriptor of a directory outside."
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

def attempt():
    outside = os.open(".", os.O_RDONLY)
    os.makedirs("jail", exist_ok=True)
    os.chroot("jail")
    os.fchdir(outside)
    escaped("%d entries seen from within" % len(os.listdir("..")))


run(attempt)
