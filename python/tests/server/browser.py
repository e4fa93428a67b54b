"""A headless Chromium, controlled over pipes (Chrome DevTools Protocol)."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import time
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# A start takes seconds on a busy machine.
PATIENCE = 120


def find() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One page."""

    def __init__(self, program: str, profile: pathlib.Path) -> None:
        ours, theirs = os.pipe(), os.pipe()
        arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-sync",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--remote-debugging-pipe",
        ]

        def numbers() -> None:
            # The browser reads descriptor 3 and writes descriptor 4. The copies above are out of the way.
            read, write = os.dup2(theirs[0], 100), os.dup2(ours[1], 101)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [program, *arguments, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=numbers,
        )
        os.close(theirs[0])
        os.close(ours[1])
        self._answers, self._requests = ours[0], theirs[1]
        self._received = b""
        self._number = 0
        self._page: str | None = None
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._page = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._page is not None:
            request["sessionId"] = self._page
        left = json.dumps(request).encode() + b"\0"
        while left:
            left = left[os.write(self._requests, left) :]
        while True:
            message, end, rest = self._received.partition(b"\0")
            if not end:
                part = os.read(self._answers, 1 << 16)
                assert part, "the browser has ended"
                self._received += part
                continue
            self._received = rest
            answer = json.loads(message)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def go(self, url: str) -> None:
        self._ask("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, script: str) -> Any:
        """The value of an expression in the page. An exception there fails the test."""
        result = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(script):
            assert time.monotonic() < end, f"{script}: {self.value('document.body.innerText')}"
            time.sleep(0.05)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._answers)
        os.close(self._requests)
