'''
id = "SF-150"
name = "take the host's pseudoterminals"
attempt = "Make WANTED (default 100) pseudoterminals: the kernel has a few thousand for all users."
severity = "high"
proven_open = "user"

[[expect]]
text = ["stopped at 16: ENOSPC"]

[[expect]]
text = ["stopped at 0: ENOENT"]
policies = ["strict"]
why = "a policy that shows no programs has no pseudoterminals"
'''


def attempt():
    wanted = int(var("WANTED", "100"))
    made = []
    try:
        while len(made) < wanted:
            made.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
        escaped("%d made" % wanted)
    except OSError as error:
        contained("stopped at %d: %s" % (len(made), errno_name(error.errno)))
    finally:
        for terminal in made:
            os.close(terminal)


run(attempt)
