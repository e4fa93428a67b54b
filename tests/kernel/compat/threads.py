import queue
import threading

work, done = queue.Queue(), queue.Queue()


def serve():
    while (item := work.get()) is not None:
        done.put(item * item)


threads = [threading.Thread(target=serve) for _ in range(8)]
for thread in threads:
    thread.start()
for number in range(100):
    work.put(number)
for _ in threads:
    work.put(None)
for thread in threads:
    thread.join()
assert sum(done.get_nowait() for _ in range(100)) == 328350

barrier = threading.Barrier(4)
waiters = [threading.Thread(target=barrier.wait) for _ in range(3)]
for waiter in waiters:
    waiter.start()
barrier.wait(20)
fired = threading.Event()
threading.Timer(0.01, fired.set).start()
assert fired.wait(20)
