"""Typical uses of the standard library, with one function for each kind of system call."""

import asyncio
import concurrent.futures
import errno
import mmap
import multiprocessing
import os
import queue
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


def square(n):
    return n * n


def files(directory):
    path = os.path.join(directory, "file")
    with open(path, "w+b") as f:
        f.write(b"x" * 8192)
        f.flush()
        os.posix_fallocate(f.fileno(), 0, 16384)
        os.fsync(f.fileno())
        os.pwritev(f.fileno(), [b"a"], 0)
        os.preadv(f.fileno(), [bytearray(3)], 0)
        with mmap.mmap(f.fileno(), 0) as mapped:
            mapped[0] = 65
            mapped.flush()
            mapped.madvise(mmap.MADV_WILLNEED)
    shutil.copy2(path, path + ".copy")
    os.chmod(path, 0o600)
    os.utime(path)
    os.truncate(path, 100)
    os.symlink("file", path + ".link")
    os.link(path, path + ".hard")
    os.replace(path + ".hard", path + ".moved")
    os.mkfifo(path + ".fifo")
    shutil.copytree(directory, os.path.join(tempfile.mkdtemp(), "tree"), symlinks=True,
                    ignore=shutil.ignore_patterns("*.fifo"))
    assert shutil.disk_usage(directory).total
    with tempfile.TemporaryFile() as f, tempfile.NamedTemporaryFile():
        f.write(b"x")


def threads(_):
    numbers = queue.Queue()
    writers = [threading.Thread(target=lambda: [numbers.put(n) for n in range(100)]) for _ in "abcd"]
    for writer in writers:
        writer.start()
    assert sum(numbers.get() for _ in range(400)) == 4 * 4950
    for writer in writers:
        writer.join()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(square, range(4))) == [0, 1, 4, 9]


def programs(directory):
    run = subprocess.run(["/bin/sh", "-c", "echo hi | cat; ls / >/dev/null"], stdout=subprocess.PIPE,
                         check=True)
    assert run.stdout == b"hi\n"
    subprocess.run([sys.executable, "-I", "-c", "import threading"], start_new_session=True, cwd=directory,
                   check=True)
    assert os.waitstatus_to_exitcode(
        os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {}), 0)[1]) == 3
    try:
        subprocess.run(["sleep", "5"], timeout=0.05)
        raise AssertionError("no timeout")
    except subprocess.TimeoutExpired:
        pass


def processes(_):
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            assert pool.map(square, range(4)) == [0, 1, 4, 9]
        results = context.SimpleQueue()
        child = context.Process(target=results.put, args=(7,))
        child.start()
        assert results.get() == 7
        child.join()
    with multiprocessing.Manager() as manager:
        assert manager.list([1, 2])[1] == 2
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert list(pool.map(square, range(4))) == [0, 1, 4, 9]


def events(directory):
    async def exchange():
        process = await asyncio.create_subprocess_exec("/bin/echo", "x", stdout=asyncio.subprocess.PIPE)
        assert (await process.communicate())[0] == b"x\n"
        path = os.path.join(directory, "socket")
        server = await asyncio.start_unix_server(lambda _, writer: writer.close(), path)
        reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b""
        writer.close()
        server.close()

    asyncio.run(exchange())
    left, right = socket.socketpair()
    left.sendall(b"x")
    epoll = select.epoll()
    epoll.register(right)
    assert len(epoll.poll(1)) == 1
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    left.close()
    right.close()


def signals(_):
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(0.05)
    assert seen
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.sigtimedwait([signal.SIGUSR1], 1).si_signo == signal.SIGUSR1
    signal.raise_signal(signal.SIGCHLD)


def limits(_):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    assert resource.prlimit(0, resource.RLIMIT_CORE) == (0, 0)
    assert resource.prlimit(os.getpid(), resource.RLIMIT_CORE) == (0, 0)
    os.setresuid(-1, -1, -1)
    os.setresgid(-1, -1, -1)
    os.sched_setscheduler(0, os.sched_getscheduler(0), os.sched_getparam(0))
    os.sched_setparam(0, os.sched_getparam(0))
    # sched_getaffinity is answered by a supervisor, which does not exist here.
    os.sched_setaffinity(0, range(os.cpu_count()))
    os.nice(1)
    os.setpgid(0, 0)


def refusals(directory):
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
        try:
            socket.socket(family)
            raise AssertionError(family)
        except OSError as error:
            assert error.errno == errno.EPERM
    for number in (0, 1, 65534):
        try:
            os.setresuid(number, number, number)
            raise AssertionError(number)
        except PermissionError:
            pass
    try:
        os.memfd_create("x")
        raise AssertionError("memfd")
    except PermissionError:
        pass


def arrays(_):
    try:
        import numpy
    except ImportError:
        return
    numbers = numpy.random.default_rng(1).random((300, 300))
    assert numpy.linalg.svd(numbers @ numbers.T)[1].size == 300


def main():
    with tempfile.TemporaryDirectory() as directory:
        for step in (files, threads, programs, processes, events, signals, limits, refusals,
                     arrays):
            print(step.__name__, flush=True)
            step(directory)
    print("done")


if __name__ == "__main__":
    main()
