"""A notebook without a server: the cells of a file, run in one session, saved as one page.

    python examples/python/notebook.py                      # notebook_cells.py to notebook.html
    python examples/python/notebook.py CELLS.py PAGE.html

A line `# %%` begins a cell, as in Jupyter, VS Code and Spyder. Ctrl-C interrupts the cell that runs, and
the next ones find its variables. After a cell that ends the session (by
a crash or a memory limit), a fresh session starts.
"""

import argparse
import threading
from html import escape
from pathlib import Path

from sandfork import Execution, Policy, Sandbox

POLICY = Policy(limits={"wall": "20s", "memory": "256MiB"})
# Media types that are saved as separate files, with their file name extensions.
PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}


class Notebook:
    """Runs cells in a session and collects their results."""

    def __init__(self) -> None:
        self.sandbox = Sandbox(POLICY, on_death="restart")
        self.ran: list[tuple[str, Execution]] = []

    def run(self, source: str, *, patience: float) -> Execution:
        """Runs a cell. After `patience` seconds it is interrupted, as by Ctrl-C."""
        hand = threading.Timer(patience, self.sandbox.interrupt)
        hand.start()
        try:
            execution = self.sandbox.run(source)
        finally:
            hand.cancel()
        self.ran.append((source, execution))
        return execution

    def restart(self) -> None:
        """Starts a fresh session without variables and files."""
        self.sandbox.restart()

    def save(self, page: Path) -> None:
        """Writes the page, and each displayed picture as a file beside it."""
        for number, (_, execution) in enumerate(self.ran, start=1):
            for shown in execution.results:
                for media_type, ending in PICTURES.items():
                    if picture := shown.raw(media_type):
                        file = page.with_name(f"{page.stem}-{number}.{ending}")
                        file.write_bytes(picture)
        # The guest's HTML is put into a frame in which it cannot run a script in the page.
        parts = (
            f"<pre>{escape(source)}</pre>{execution._repr_html_()}"
            for source, execution in self.ran
        )
        head = "<!doctype html><meta charset=utf-8>"
        page.write_text(head + "<hr>".join(parts), "utf-8")


def cells_of(text: str) -> list[str]:
    """The cells of a file, each with its `# %%` line, so that it shows its title."""
    cells, lines = [], []
    for line in text.splitlines(keepends=True):
        if line.startswith("# %%") and lines:
            cells.append("".join(lines))
            lines = []
        lines.append(line)
    return [cell for cell in [*cells, "".join(lines)] if cell.strip()]


def line_about(execution: Execution) -> str:
    """Describes in one line how a cell ended."""
    said = [execution.status]
    if execution.restarted:
        said.append("in a fresh session")
    if execution.error is not None:
        said.append(f"{execution.error.name}: {execution.error.value}".rstrip(": "))
    elif execution.text is not None:
        said.append(execution.text)
    forms = {form for shown in execution.results for form in shown if form != "text"}
    if forms:
        said.append(f"shows {', '.join(sorted(forms))}")
    return "; ".join(said)


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "cells", nargs="?", type=Path, default=here / "notebook_cells.py"
    )
    parser.add_argument("page", nargs="?", type=Path, default=Path("notebook.html"))
    parser.add_argument("--patience", type=float, default=10, metavar="SECONDS")
    options = parser.parse_args()

    notebook = Notebook()
    for source in cells_of(options.cells.read_text("utf-8")):
        try:
            execution = notebook.run(source, patience=options.patience)
        except KeyboardInterrupt:
            print("interrupted; the next cell goes on")
            continue
        print(f"[{len(notebook.ran)}] {line_about(execution)}")
    notebook.restart()
    left = notebook.run("[name for name in globals() if name[0] != '_']", patience=10)
    print("after a restart:", left.value)
    notebook.save(options.page)
    print(f"saved {options.page.name}")


if __name__ == "__main__":
    main()
