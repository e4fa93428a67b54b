"""Runs the Python of a document as it stands: `python3 tour.py DOCUMENT`.

The blocks of a document are one program: each can use the names of those before it. A block must print
the text of its `# -> ` comments, in their order; `...` in a comment stands for any text.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"# -> ?(.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A block of Python."""

    line: int
    """The block's first line in the document."""
    code: str

    def shown(self) -> str:
        """The output that the block's comments promise."""
        return "".join(f"{line}\n" for line in SHOWN.findall(self.code))


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        yield Block(text.count("\n", 0, found.start(1)) + 1, found.group(1))


def printed(block: Block, document: str, names: dict[str, Any]) -> str:
    """Runs the block and returns its output. Line numbers are those of the document."""
    code = compile("\n" * (block.line - 1) + block.code, document, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code, names)
    return output.getvalue()


def fault(block: Block, document: str, names: dict[str, Any]) -> str | None:
    """Returns the error in a block, or `None`."""
    try:
        output = printed(block, document, names)
    except BaseException:
        return traceback.format_exc()
    if doctest.OutputChecker().check_output(block.shown(), output, doctest.ELLIPSIS):
        return None
    return f"it printed\n{output}in place of\n{block.shown()}"


def main(document: str) -> int:
    found = list(blocks(Path(document).read_text("utf-8")))
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in found:
        if (wrong := fault(block, document, names)) is not None:
            print(f"{document}:{block.line}: {wrong}", file=sys.stderr)
            return 1
    print(f"{len(found)} blocks ran")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
