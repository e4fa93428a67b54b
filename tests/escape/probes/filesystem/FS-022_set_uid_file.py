'''
id = "FS-022"
name = "set-uid file on a suid-honouring mount"
attempt = "chmod 4755 a file in the work directory and check that the mount honours it."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["EPERM"]

[[expect]]
text = ["nosuid or bit dropped"]
'''


def attempt():
    path = "suid_fs022"
    open(path, "w").close()
    os.chmod(path, 0o4755)
    try:
        kept = os.stat(path).st_mode & 0o4000
        nosuid = os.statvfs(".").f_flag & os.ST_NOSUID
        if kept and not nosuid:
            escaped("suid kept on a mount without nosuid")
        else:
            contained("nosuid or bit dropped")
    finally:
        os.unlink(path)


run(attempt)
