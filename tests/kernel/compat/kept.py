"""Checks that a copy of the state of `made.py` works."""

assert running.send(8) == 49 and next(running) == 50
assert await asynchronous.__anext__() == 1
assert next(pairs) == ("a", "c")
assert context[variable] == 7
assert precise.divide(decimal.Decimal(1), 3) == decimal.Decimal("0.33333333333")
assert zlib.decompress(compressed + compressor.flush()) == b"a" * 100_000
assert parsed.match("12-ab").groups() == ("12", "ab")
assert memory.execute("select sum(a) from kept").fetchone() == (499500,)
stored.execute("insert into kept values('second')")
stored.commit()
assert stored.execute("select count(*) from kept").fetchone() == (2,)
assert text.readline() == "two\n" and text.tell() == 8
text.seek(0, 2)
text.write("four\n")
text.flush()
assert open("kept.txt").read() == "one\ntwo\nthree\nfour\n"
assert stream.read() == "b\n"
assert local.value == "local" and lock.locked()
lock.release()
assert callback(41) == 42
assert structure[999] == 999.0
assert len(large) == 8_000_000 and large.count(b"x") == 8_000_000
large.extend(b"y" * 8_000_000)
assert large[-1:] == b"y"
assert named["49999"] == [49999] * 3 and len(named) == 50_000
assert queue.popleft() == 0 and len(queue) == 99
assert order == list({"b", "a", "d", "c"})
assert when.isoformat() == "2020-01-02T00:00:00+00:00"
assert remembered.cache_info().currsize == 1 and remembered(12) == 144
assert id(nodes[17]) == identity and nodes[17].cycle is nodes[17]
import gc

gc.collect()
assert gone() is None and len(Node.kept) == 5000
del nodes[2500:]
gc.collect()
assert len(Node.kept) == 2500
if "numpy" in sys.modules:
    assert array.sum() == 1999999000000.0
    array *= 2
    assert array[-1] == 3999998.0
    assert frame.a.sum() == 499500 and frame.b.iloc[7] == "7"
    frame["c"] = frame.a * 2
    assert frame.groupby(frame.a % 3).c.sum().sum() == 999000
heard = []
worker = threading.Thread(target=heard.append, args=("thread",))
worker.start()
worker.join()
assert heard == ["thread"]
said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True)
assert said.stdout == "42\n", said
assert os.getpid() == 2 and os.getcwd() == "/work"
signal.signal(signal.SIGALRM, lambda *_: heard.append("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
assert heard == ["thread", "alarm"]
await asyncio.wait_for(asyncio.sleep(0.001), 20)
import xml.etree.ElementTree as tree

assert tree.fromstring("<a><b/></a>")[0].tag == "b"
assert json.loads(json.dumps({"a": [1, 2]})) == {"a": [1, 2]}
assert struct.unpack("<I", struct.pack("<I", 7)) == (7,)
blocks = [bytes(number) for number in range(0, 200_000, 97)]
del blocks[::2]
assert sum(map(len, blocks)) > 1 << 20
