'''
id = "PH-005"
name = "invalid text"
attempt = "Print invalid UTF-8, NUL bytes, BOM, U+2028 and an over-long line."
severity = "medium"
proven_open = "user"
judge = "host"
host_check = "output-decoded"

[[expect]]
text = ["payload sent"]
'''


def attempt():
    os.write(1, b"\xff\xfe\x00\xc3\x28\xed\xa0\x80\xe2\x80\xa8\n")
    contained("payload sent")


run(attempt)
