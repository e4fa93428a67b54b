'''
id = "SF-103"
name = "memory files of reserved huge pages"
attempt = """
memfd_create(MFD_HUGETLB): its pages come from the host's reserve, and no memory cgroup counts them."""
severity = "medium"
proven_open = "user"
needs = ["memfd-noexec-seal", "huge-pages"]

[[expect]]
errno = ["EPERM"]
'''

MFD_HUGETLB, NOEXEC_SEAL = 4, 8


def attempt():
    file = os.memfd_create("sf103", MFD_HUGETLB | NOEXEC_SEAL)
    escaped("descriptor %d" % file)


run(attempt)
