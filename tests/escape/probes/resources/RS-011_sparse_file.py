'''
id = "RS-011"
name = "sparse giant artifact"
attempt = "ftruncate a file to 1 TiB (a collector that trusts st_size dies)."
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EFBIG"]

[[expect]]
status = ["file-limit"]
errno = ["EFBIG"]
'''

TEBIBYTE = 1 << 40


def attempt():
    with open("sparse_rs011", "wb") as file:
        file.truncate(TEBIBYTE)
        size = os.stat("sparse_rs011").st_size
    os.unlink("sparse_rs011")
    if size == TEBIBYTE:
        escaped("st_size %d" % size)
    else:
        contained("st_size %d" % size)


run(attempt)
