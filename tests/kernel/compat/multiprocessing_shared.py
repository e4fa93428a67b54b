import multiprocessing
from multiprocessing import shared_memory


def fill(name):
    block = shared_memory.SharedMemory(name)
    block.buf[:4] = b"done"
    block.close()


def append(shared, number):
    shared["list"].append(number)


context = multiprocessing.get_context("fork")
block = shared_memory.SharedMemory(create=True, size=1 << 20)
worker = context.Process(target=fill, args=(block.name,))
worker.start()
worker.join()
assert bytes(block.buf[:4]) == b"done"
block.close()
block.unlink()

with context.Manager() as manager:
    shared = manager.dict()
    shared["list"] = manager.list()
    workers = [context.Process(target=append, args=(shared, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(shared["list"]) == [0, 1, 2]
