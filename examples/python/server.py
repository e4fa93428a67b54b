"""A server that gives each user their own Python session.

    pip install starlette uvicorn
    python examples/python/server.py              # serves on http://127.0.0.1:8000

    curl -X POST localhost:8000/sessions          # {"session": "Zk3..."}
    curl --data-binary 'x = 6' localhost:8000/sessions/Zk3.../run
    curl --data-binary 'x * 7' localhost:8000/sessions/Zk3.../run
    curl -X POST localhost:8000/sessions/Zk3.../interrupt
    curl -X DELETE localhost:8000/sessions/Zk3...

A session's name is a secret: a client that has it may use the session, and no client can guess another's.
With `--self-test` the server uses a free port, runs its own clients, and exits.
"""

import argparse
import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandfork import (
    AsyncSandbox,
    Policy,
    SandboxUnavailable,
    SessionBusy,
    SessionClosed,
    SessionEnded,
    SupervisorError,
)

# The limits of one session; the supervisor itself ends sessions that are idle or too old.
POLICY = Policy(
    limits={"wall": "10s", "memory": "256MiB"}, session={"idle": "15m", "age": "12h"}
)
# As many sessions as fit into memory.
MAX_SESSIONS = 64
LONGEST_CODE = 64 * 1024


class Sessions:
    """The sessions by their names."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: dict[str, AsyncSandbox] = {}

    async def create(self) -> str:
        """Starts a session and returns its name."""
        if len(self.open) >= self.most:
            await self.forget_ended()
        if len(self.open) >= self.most:
            raise HTTPException(503, "all sessions are taken: try again later")
        name = secrets.token_urlsafe(16)
        # Counted before it has started, because other requests may arrive meanwhile.
        sandbox = self.open[name] = AsyncSandbox(POLICY)
        try:
            await sandbox.__aenter__()
        except BaseException:
            del self.open[name]
            raise
        return name

    def get(self, request: Request) -> AsyncSandbox:
        """Returns the session that a request names."""
        sandbox = self.open.get(request.path_params["session"])
        if sandbox is None:
            raise HTTPException(404, "there is no such session")
        return sandbox

    async def close(self, name: str) -> None:
        """Ends a session, and the cell that runs in it."""
        if (sandbox := self.open.pop(name, None)) is not None:
            await sandbox.close()

    async def forget_ended(self) -> None:
        """Removes the sessions that the supervisor has ended."""
        for name, sandbox in list(self.open.items()):
            try:
                await sandbox.files.exists(".")
            except SessionBusy:
                continue
            except (SessionEnded, SupervisorError):
                await self.close(name)


async def create(request: Request) -> Response:
    name = await request.app.state.sessions.create()
    return JSONResponse({"session": name}, 201)


async def body_of(request: Request) -> bytes:
    """Returns the request's body. Stops reading a body that is too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_CODE:
            raise HTTPException(413, f"the code is longer than {LONGEST_CODE} bytes")
    return body


async def run(request: Request) -> Response:
    sandbox = request.app.state.sessions.get(request)
    code = await body_of(request)
    try:
        # Any result of the guest is an answer.
        execution = await sandbox.run(code.decode("utf-8", "replace"))
    except SessionBusy:
        raise HTTPException(
            409, "the session runs something: wait, or interrupt it"
        ) from None
    except (SessionEnded, SessionClosed) as error:
        await request.app.state.sessions.close(request.path_params["session"])
        raise HTTPException(410, f"{error}") from None
    return Response(execution.to_json(), media_type="application/json")


async def interrupt(request: Request) -> Response:
    request.app.state.sessions.get(request).interrupt()
    return Response(status_code=204)


async def close(request: Request) -> Response:
    request.app.state.sessions.get(request)
    await request.app.state.sessions.close(request.path_params["session"])
    return Response(status_code=204)


async def refused(request: Request, error: Exception) -> Response:
    """Reports errors that the user did not cause to the operator; see `sandfork doctor`."""
    print(f"no session: {error}", flush=True)
    return JSONResponse({"detail": "no sandbox can be had"}, 503)


async def told(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code)


def application(most: int = MAX_SESSIONS) -> Starlette:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.sessions = sessions = Sessions(most)
        yield
        for name in list(sessions.open):
            await sessions.close(name)

    routes = [
        Route("/sessions", create, methods=["POST"]),
        Route("/sessions/{session}", close, methods=["DELETE"]),
        Route("/sessions/{session}/run", run, methods=["POST"]),
        Route("/sessions/{session}/interrupt", interrupt, methods=["POST"]),
    ]
    handlers = dict.fromkeys((SandboxUnavailable, SupervisorError), refused)
    handlers[HTTPException] = told
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


async def serve_and_ask() -> None:
    """Runs the server with clients that check its answers."""
    from server_clients import ask_all

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(most=8), log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await ask_all(listening.getsockname()[1])
    finally:
        server.should_exit = True
        await serving


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        asyncio.run(serve_and_ask())
    else:
        uvicorn.run(application(), host="127.0.0.1", port=8000)
