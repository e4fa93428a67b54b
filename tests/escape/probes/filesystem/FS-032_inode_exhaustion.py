'''
id = "FS-032"
name = "inode exhaustion"
attempt = """
Create up to INODES (default 20000) empty files in the work directory, then remove them."""
severity = "medium"
proven_open = "user"

[[expect]]
text = ["stopped at * No space left on device", "stopped at * Disk quota exceeded"]
'''


def attempt():
    wanted = int(var("INODES", "20000"))
    os.makedirs("i", exist_ok=True)
    made = 0
    try:
        for made in range(wanted):
            os.close(os.open("i/%d" % made, os.O_CREAT | os.O_WRONLY))
        escaped("%d files created" % wanted)
    except OSError as error:
        contained("stopped at %d %s" % (made, error.strerror))
    finally:
        for name in os.listdir("i"):
            os.unlink("i/" + name)
        os.rmdir("i")


run(attempt)
