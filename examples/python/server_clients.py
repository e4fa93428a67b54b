"""Clients of server.py for its `--self-test`. They use only the standard library."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any


class Client:
    """A user, who knows the server's address and later the name of their session."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    async def ask(
        self, path: str, body: str = "", method: str = "POST"
    ) -> tuple[int, Any]:
        """Sends a request. Returns the status and the body of the response."""
        data = body.encode() if method == "POST" else None
        request = urllib.request.Request(self.address + path, data, method=method)
        return await asyncio.to_thread(answer_to, request)

    async def create(self) -> str:
        """Opens a session for the later requests."""
        status, told = await self.ask("/sessions")
        assert status == 201, told
        self.session = f"/sessions/{told['session']}"
        return self.session

    async def run(self, code: str) -> tuple[int, Any]:
        return await self.ask(f"{self.session}/run", code)


def answer_to(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read() or "null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or "null")


async def ask_all(port: int) -> None:
    """Sends requests that users may send, and requests that must be refused."""
    users = [Client(port) for _ in range(8)]
    await asyncio.gather(*(user.create() for user in users))
    await each_sees_his_own(users)
    print(f"{len(users)} users at once, each with variables and files of his own")

    status, told = await Client(port).ask("/sessions")
    assert status == 503, told
    print(f"one more: {status}, {told['detail']}")

    alice = users[0]
    sleep = "import time; time.sleep(1)"
    both = await asyncio.gather(alice.run(sleep), alice.run(sleep))
    print("two requests to one session:", sorted(status for status, _ in both))

    running = asyncio.create_task(alice.run("kept = 1\ntime.sleep(60)"))
    while not running.done():
        # An interrupt has no effect while nothing runs.
        await alice.ask(f"{alice.session}/interrupt")
        await asyncio.sleep(0.05)
    _, told = running.result()
    print(f"interrupted: {told['status']}, session {told['session']}")

    status, told = await alice.run("import os; os._exit(3)")
    print(f"it exits: {told['status']}, session {told['session']}")
    status, told = await alice.run("kept")
    assert status == 410, told
    print(f"after that: {status}, then {(await alice.run('kept'))[0]}")

    for user in users[1:]:
        status, _ = await user.ask(user.session, method="DELETE")
        assert status == 204
    await Client(port).create()
    print("closed, and room for others")


async def each_sees_his_own(users: list[Client]) -> None:
    async def use(number: int, user: Client) -> None:
        status, told = await user.run(
            f"mine = {number}\nopen('note', 'x').write(str(mine))"
        )
        assert (status, told["status"]) == (200, "ok"), told
        _, told = await user.run(
            "import glob; mine, open('note').read(), glob.glob('*')"
        )
        assert told["results"] == [{"text": f"({number}, '{number}', ['note'])"}], told

    await asyncio.gather(*(use(number, user) for number, user in enumerate(users)))
