import multiprocessing
import os


def square(number):
    return number * number, os.getpid()


def fill(results, start):
    for number in range(start, start + 10):
        results.put(number)


context = multiprocessing.get_context("fork")
with context.Pool(4) as pool:
    answers = pool.map(square, range(200), chunksize=5)
assert [answer for answer, _ in answers] == [number * number for number in range(200)]
assert os.getpid() not in {pid for _, pid in answers}

results = context.Queue()
workers = [context.Process(target=fill, args=(results, start)) for start in (0, 10)]
for worker in workers:
    worker.start()
assert sorted(results.get(timeout=20) for _ in range(20)) == list(range(20))
for worker in workers:
    worker.join()
assert [worker.exitcode for worker in workers] == [0, 0]

ours, theirs = context.Pipe()
counter, lock = context.Value("i", 0), context.Lock()


def count():
    for _ in range(500):
        with lock:
            counter.value += 1
    theirs.send("counted")


workers = [context.Process(target=count) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    assert ours.recv() == "counted"
    worker.join()
assert counter.value == 1500
