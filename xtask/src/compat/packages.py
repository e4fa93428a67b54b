# A typical use of each package in a few lines. The tool runs each part separately, as a script. A module name that
# differs from the package's is in parentheses.
# package: aiohttp
import asyncio
from aiohttp import web, ClientSession
async def main():
    app = web.Application()
    async def hello(request):
        return web.Response(text="hi")
    app.add_routes([web.get("/", hello)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as answer:
        assert await answer.text() == "hi"
    await runner.cleanup()
asyncio.run(main())
# package: altair
import altair, pandas
altair.Chart(pandas.DataFrame({"a": [1], "b": [2]})).mark_bar().encode(x="a", y="b").to_json()
# package: attrs
import attrs
@attrs.define
class Point:
    x: int
assert attrs.asdict(Point(1)) == {"x": 1}
# package: beautifulsoup4 (bs4)
import bs4
assert bs4.BeautifulSoup("<p>a</p>", "html.parser").p.text == "a"
# package: bokeh
import bokeh.embed, bokeh.plotting, bokeh.resources
figure = bokeh.plotting.figure()
figure.line([1, 2], [3, 4])
bokeh.embed.file_html(figure, bokeh.resources.INLINE)
# package: cffi
import cffi
ffi = cffi.FFI()
ffi.cdef("size_t strlen(const char *);")
assert ffi.dlopen(None).strlen(b"abc") == 3
# package: click
import click, click.testing
@click.command()
def command():
    click.echo("hi")
assert click.testing.CliRunner().invoke(command).output == "hi\n"
# package: cryptography
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric import rsa
key = Fernet(Fernet.generate_key())
assert key.decrypt(key.encrypt(b"a")) == b"a"
rsa.generate_private_key(public_exponent=65537, key_size=2048)
# package: dask
import dask.array, dask.dataframe, pandas
assert dask.array.ones((100, 100), chunks=10).sum().compute() == 10000
frame = dask.dataframe.from_pandas(pandas.DataFrame({"a": range(10)}), npartitions=2)
if __name__ == "__main__":
    assert frame.a.sum().compute(scheduler="processes") == 45
# package: distributed
from dask.distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            assert client.submit(abs, -1).result() == 1
# package: duckdb
import duckdb
assert duckdb.sql("select sum(range) from range(1000)").fetchall() == [(499500,)]
# package: fastapi
from fastapi import FastAPI
from fastapi.testclient import TestClient
app = FastAPI()
@app.get("/")
def root():
    return {"a": 1}
assert TestClient(app).get("/").json() == {"a": 1}
# package: flask
import flask
app = flask.Flask(__name__)
app.route("/")(lambda: "hi")
assert app.test_client().get("/").data == b"hi"
# package: grpcio (grpc)
from concurrent import futures
import grpc
server = grpc.server(futures.ThreadPoolExecutor(2))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
grpc.channel_ready_future(channel).result(timeout=30)
channel.close()
server.stop(None).wait()
# package: gunicorn
import os, subprocess, sys, time, urllib.request
with open("app.py", "w") as file:
    file.write("def app(environ, start):\n    start('200 OK', [])\n    return [b'hi']\n")
server = subprocess.Popen([sys.executable, "-m", "gunicorn", "-b", "127.0.0.1:8123", "app:app"])
try:
    for _ in range(300):
        try:
            assert urllib.request.urlopen("http://127.0.0.1:8123/").read() == b"hi"
            break
        except OSError:
            assert server.poll() is None
            time.sleep(0.1)
    else:
        raise SystemExit("no answer")
finally:
    server.terminate()
    server.wait()
# package: h5py
import h5py, numpy
with h5py.File("a.h5", "w") as file:
    file["a"] = numpy.arange(10)
with h5py.File("a.h5") as file:
    assert file["a"][3] == 3
# package: httpx
import httpx
transport = httpx.MockTransport(lambda request: httpx.Response(200, text="hi"))
assert httpx.Client(transport=transport).get("http://a/").text == "hi"
# package: hypothesis
from hypothesis import given, strategies
@given(strategies.integers())
def test(number):
    assert number == int(str(number))
test()
# package: ipykernel
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
client.execute_interactive("1 + 1", timeout=60)
client.stop_channels()
manager.shutdown_kernel(now=True)
# package: ipython (IPython)
from IPython.core.interactiveshell import InteractiveShell
assert InteractiveShell.instance().run_cell("6 * 7").result == 42
# package: jinja2
import jinja2
assert jinja2.Template("{{ a }}").render(a=1) == "1"
# package: joblib
from joblib import Parallel, delayed
assert Parallel(n_jobs=2)(delayed(abs)(-n) for n in range(4)) == [0, 1, 2, 3]
assert Parallel(n_jobs=2, prefer="threads")(delayed(abs)(-n) for n in range(4)) == [0, 1, 2, 3]
# package: lark
import lark
assert lark.Lark('start: "a"+').parse("aaa").data == "start"
# package: lightgbm
import lightgbm, numpy
data = numpy.random.default_rng(0).random((200, 4))
lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(data, data[:, 0]).predict(data)
# package: lxml
import lxml.etree
assert lxml.etree.fromstring("<a><b/></a>").find("b") is not None
# package: matplotlib
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.savefig("a.png")
plt.savefig("a.svg")
# package: msgpack
import msgpack
assert msgpack.unpackb(msgpack.packb({"a": [1]})) == {"a": [1]}
# package: networkx
import networkx
assert networkx.shortest_path(networkx.path_graph(4), 0, 3) == [0, 1, 2, 3]
# package: nltk
import nltk.stem
assert nltk.stem.PorterStemmer().stem("running") == "run"
# package: numba
import numba
@numba.njit
def total(n):
    s = 0
    for i in range(n):
        s += i
    return s
assert total(10) == 45
# package: numpy
import numpy
a = numpy.random.default_rng(0).random((300, 300))
numpy.linalg.svd(a)
numpy.save("a.npy", a)
assert numpy.load("a.npy", mmap_mode="r").shape == (300, 300)
# package: opencv-python-headless (cv2)
import cv2, numpy
cv2.imwrite("a.png", numpy.zeros((10, 10, 3), numpy.uint8))
assert cv2.imread("a.png").shape == (10, 10, 3)
# package: openpyxl
import openpyxl
book = openpyxl.Workbook()
book.active["A1"] = 1
book.save("a.xlsx")
assert openpyxl.load_workbook("a.xlsx").active["A1"].value == 1
# package: orjson
import orjson
assert orjson.loads(orjson.dumps({"a": 1})) == {"a": 1}
# package: pandas
import pandas
frame = pandas.DataFrame({"a": [1, 2], "t": pandas.to_datetime(["2024-01-01", "2024-06-01"]).tz_localize("Europe/Berlin")})
frame.to_csv("a.csv")
assert pandas.read_csv("a.csv").a.sum() == 3
frame.groupby("a").t.max()
# package: pexpect
import pexpect
child = pexpect.spawn("sh", ["-c", "read a; echo got $a"])
child.sendline("it")
child.expect("got it")
child.wait()
# package: pillow (PIL)
import PIL.Image, PIL.ImageDraw
image = PIL.Image.new("RGB", (10, 10))
PIL.ImageDraw.Draw(image).text((0, 0), "a")
image.save("a.jpg")
# package: plotly
import plotly.graph_objects as go
go.Figure(go.Bar(y=[1, 2])).to_html()
# package: polars
import polars
frame = polars.DataFrame({"a": [1, 2, 3]})
assert frame.lazy().filter(polars.col("a") > 1).collect().height == 2
frame.write_parquet("a.parquet")
# package: protobuf (google.protobuf)
from google.protobuf import struct_pb2
message = struct_pb2.Struct()
message.update({"a": 1})
assert struct_pb2.Struct.FromString(message.SerializeToString())["a"] == 1
# package: psutil
import psutil
assert psutil.virtual_memory().total > 0
assert psutil.cpu_count() >= 1
psutil.cpu_percent(0.1)
psutil.cpu_times()
psutil.boot_time()
psutil.swap_memory()
process = psutil.Process()
process.memory_info(), process.open_files(), process.cmdline(), process.create_time(), process.num_threads()
assert process.pid in psutil.pids()
# package: pyarrow
import pyarrow, pyarrow.parquet
table = pyarrow.table({"a": [1, 2]})
pyarrow.parquet.write_table(table, "a.parquet")
assert pyarrow.parquet.read_table("a.parquet").num_rows == 2
# package: pydantic
import pydantic
class Model(pydantic.BaseModel):
    a: int
assert Model(a="1").a == 1
# package: pytest
import pytest
with open("test_a.py", "w") as file:
    file.write("def test_a(tmp_path, capfd):\n    assert tmp_path.exists()\n")
assert pytest.main(["-q", "test_a.py"]) == 0
# package: pyyaml (yaml)
import yaml
assert yaml.safe_load("a: [1]") == {"a": [1]}
# package: regex
import regex
assert regex.match(r"\p{L}+", "é")
# package: requests
import http.server, threading, requests
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert requests.get(f"http://localhost:{server.server_port}/").ok
server.shutdown()
# package: rich
import rich.console, rich.table
rich.console.Console().print(rich.table.Table("a"))
# package: scikit-image (skimage)
import numpy, skimage.filters
skimage.filters.gaussian(numpy.zeros((10, 10)))
# package: scikit-learn (sklearn)
import numpy
from sklearn.ensemble import RandomForestClassifier
data = numpy.random.default_rng(0).random((100, 4))
RandomForestClassifier(n_estimators=10, n_jobs=2).fit(data, data[:, 0] > 0.5).predict(data)
# package: scipy
import numpy, scipy.optimize, scipy.sparse, scipy.stats
assert scipy.optimize.minimize(lambda x: (x[0] - 1) ** 2, [0.0]).success
scipy.stats.norm.fit([1.0, 2.0, 3.0])
# package: seaborn
import matplotlib
matplotlib.use("agg")
import pandas, seaborn
seaborn.scatterplot(pandas.DataFrame({"a": [1, 2], "b": [3, 4]}), x="a", y="b").figure.savefig("a.png")
# package: shapely
import shapely
assert shapely.Point(0, 0).buffer(1).area > 3
# package: spacy
import spacy
assert [token.text for token in spacy.blank("en")("a b")] == ["a", "b"]
# package: sqlalchemy
import sqlalchemy
engine = sqlalchemy.create_engine("sqlite:///a.db")
with engine.connect() as connection:
    assert connection.execute(sqlalchemy.text("select 1")).scalar() == 1
# package: starlette and uvicorn (uvicorn)
import asyncio, uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
import httpx
app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("hi"))])
async def main():
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        assert not task.done()
        await asyncio.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hi"
    server.should_exit = True
    await task
asyncio.run(main())
# package: statsmodels
import numpy, statsmodels.api
data = numpy.random.default_rng(0).random((50, 2))
statsmodels.api.OLS(data[:, 0], data).fit().summary()
# package: sympy
import sympy
x = sympy.symbols("x")
assert sympy.integrate(2 * x, x) == x**2
# package: tables
import tables
with tables.open_file("a.h5", "w") as file:
    file.create_array("/", "a", [1, 2, 3])
# package: tokenizers
from tokenizers import Tokenizer, models, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.train_from_iterator(["a b c"] * 10, trainers.BpeTrainer(vocab_size=20, show_progress=False))
# package: tqdm
import tqdm
assert sum(tqdm.tqdm(range(10))) == 45
# package: websockets
import asyncio, websockets
async def main():
    async def echo(socket):
        async for message in socket:
            await socket.send(message)
    async with websockets.serve(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with websockets.connect(f"ws://127.0.0.1:{port}", proxy=None) as socket:
            await socket.send("a")
            assert await socket.recv() == "a"
asyncio.run(main())
# package: xarray
import numpy, xarray
assert xarray.DataArray(numpy.ones((2, 2)), dims=("a", "b")).sum().item() == 4
# package: xgboost
import numpy, xgboost
data = numpy.random.default_rng(0).random((100, 4))
xgboost.XGBRegressor(n_estimators=3).fit(data, data[:, 0]).predict(data)
# package: zarr
import numpy, zarr
array = zarr.open("a.zarr", mode="w", shape=(10,), dtype="i4")
array[:] = numpy.arange(10)
assert array[3] == 3
# package: zstandard
import zstandard
assert zstandard.decompress(zstandard.compress(b"a")) == b"a"
