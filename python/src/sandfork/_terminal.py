"""Makes a guest's text harmless to a terminal, as the command does (`src/cli/terminal.rs`)."""

from __future__ import annotations

_SHOWN = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_SHOWN[ord("\r")] = "\\r"
for _character in "\n\t":
    del _SHOWN[ord(_character)]


def harmless(text: str) -> str:
    """The text with its control characters in Python's notation, because a terminal would obey them. Newlines
    and tabs are kept, and CRLF becomes a newline."""
    return text.replace("\r\n", "\n").translate(_SHOWN)
