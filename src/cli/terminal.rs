//! Makes a guest's output harmless to a terminal.
//!
//! A terminal interprets control characters: escape sequences rewrite earlier lines, set the title, fill the clipboard,
//! and in some emulators send input. The filter prints every control character in Python's notation instead
//! (`\x1b[31m`). A sequence is therefore inert wherever the guest splits it, and no terminal can parse it differently
//! from the filter. Newlines, tabs and all other text pass.

use std::io::{self, Write};

/// Filters one output stream.
#[derive(Debug, Default)]
pub struct Neutralizer {
    /// An incomplete character, or a carriage return that may belong to a line end.
    pending: Vec<u8>,
}

impl Neutralizer {
    /// Appends the harmless form of `input` to `out`.
    pub fn filter(&mut self, input: &[u8], out: &mut Vec<u8>) {
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(input);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let (text, invalid) = (chunk.valid(), chunk.invalid());
            let is_last = chunks.peek().is_none();
            match text.strip_suffix('\r') {
                Some(text) if invalid.is_empty() => {
                    show(text, out);
                    self.pending.push(b'\r');
                }
                _ => show(text, out),
            }
            match std::str::from_utf8(invalid) {
                Ok(_) => {}
                Err(error) if is_last && error.error_len().is_none() => {
                    self.pending.extend_from_slice(invalid);
                }
                // Lone bytes 0x80 to 0x9f are control characters to a terminal outside UTF-8 mode.
                Err(_) => push(char::REPLACEMENT_CHARACTER, out),
            }
        }
    }

    /// Appends the pending bytes at the end of the stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match std::mem::take(&mut self.pending).as_slice() {
            [] => {}
            b"\r" => out.extend_from_slice(b"\\r"),
            _ => push(char::REPLACEMENT_CHARACTER, out),
        }
    }
}

/// Escapes the characters of a text that a terminal interprets.
pub fn harmless(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    show(text, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// Like [`harmless`], but also escapes line breaks and bidirectional controls, which reorder the rest of a line.
pub fn harmless_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in harmless(text).chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                line.extend(character.escape_unicode());
            }
            _ => line.push(character),
        }
    }
    line
}

/// Writes JSON without control characters. JSON already escapes those up to U+001F; a terminal also interprets U+007F
/// to U+009F. Expects complete characters per write, as serde_json writes them.
#[derive(Debug)]
pub struct HarmlessJson<W>(pub W);

impl<W: Write> Write for HarmlessJson<W> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        let mut rest = json;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, 0x7f | 0xc2)) {
            let (harmless, from) = rest.split_at(at);
            self.0.write_all(harmless)?;
            let length = match from {
                [0x7f, ..] => {
                    self.0.write_all(b"\\u007f")?;
                    1
                }
                // In UTF-8, the second byte is the character's code point.
                [0xc2, control @ ..=0x9f, ..] => {
                    write!(self.0, "\\u{control:04x}")?;
                    2
                }
                other => {
                    self.0.write_all(&other[..1])?;
                    1
                }
            };
            rest = &from[length..];
        }
        self.0.write_all(rest)?;
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn show(text: &str, out: &mut Vec<u8>) {
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\t' => push(character, out),
            '\r' if characters.peek() == Some(&'\n') => {}
            '\r' => out.extend_from_slice(b"\\r"),
            _ if character.is_control() => {
                out.extend_from_slice(format!("\\x{:02x}", u32::from(character)).as_bytes());
            }
            _ => push(character, out),
        }
    }
}

fn push(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::{HarmlessJson, Neutralizer, harmless_line};

    fn filter<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut neutralizer = Neutralizer::default();
        let mut out = Vec::new();
        for piece in pieces {
            neutralizer.filter(piece, &mut out);
        }
        neutralizer.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_passes() {
        let text = "plain\ttext\nna\u{ef}ve \u{1f40d} \u{5d0}\u{5d1}\n";
        assert_eq!(filter([text.as_bytes()]), text);
    }

    #[test]
    fn control_sequences_are_escaped() {
        let cases: [(&[u8], &str); 9] = [
            (b"\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
            (b"\x1b]0;title\x07", r"\x1b]0;title\x07"),
            (b"\x1b]52;c;cm0gLXJm\x1b\\", r"\x1b]52;c;cm0gLXJm\x1b\"),
            (b"\x1bP$q\"p\x1b\\", r#"\x1bP$q"p\x1b\"#),
            ("\u{9b}31m".as_bytes(), r"\x9b31m"),
            (b"\x9b31m", "\u{fffd}31m"),
            (b"abc\x08\x08\x7f\0", r"abc\x08\x08\x7f\x00"),
            (b"100%\rsandfork: ok", r"100%\rsandfork: ok"),
            (b"\x0e\x0f\x05\x0b\x0c", r"\x0e\x0f\x05\x0b\x0c"),
        ];
        for (input, shown) in cases {
            assert_eq!(filter([input]), shown);
        }
    }

    #[test]
    fn harmless_json_is_equivalent() {
        let text: String = ('\0'..'\u{100}').chain(['\u{1f40d}']).collect();
        let json = serde_json::to_string(&text).unwrap();
        assert!(json.chars().any(char::is_control));
        let mut harmless = Vec::new();
        serde_json::to_writer(HarmlessJson(&mut harmless), &text).unwrap();
        let harmless = String::from_utf8(harmless).unwrap();
        assert!(!harmless.chars().any(char::is_control), "{harmless}");
        assert_eq!(serde_json::from_str::<String>(&harmless).unwrap(), text);
    }

    #[test]
    fn harmless_line_stays_one_line() {
        let text = "unknown key `a\r\nsandfork: 1 task\x1b[A`";
        assert_eq!(
            harmless_line(text),
            r"unknown key `a\nsandfork: 1 task\x1b[A`"
        );
    }

    #[test]
    fn crlf_is_a_line_end() {
        assert_eq!(filter([b"a\r\nb\r\n".as_slice()]), "a\nb\n");
        assert_eq!(filter([b"a\r".as_slice(), b"\nb"]), "a\nb");
        assert_eq!(filter([b"a\r".as_slice(), b"b\r"]), "a\\rb\\r");
        assert_eq!(filter([b"\r\xe2\x82".as_slice(), b"\xac"]), "\\r\u{20ac}");
    }

    #[test]
    fn only_incomplete_characters_are_held_back() {
        let mut neutralizer = Neutralizer::default();
        let mut out = Vec::new();
        neutralizer.filter(b"prompt> \xe2\x82", &mut out);
        assert_eq!(out, b"prompt> ");
        neutralizer.filter(b"\xac", &mut out);
        assert_eq!(out, "prompt> \u{20ac}".as_bytes());
    }

    proptest! {
        #[test]
        fn output_has_no_controls_and_ignores_chunking(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\r'), Just(0x1b), 0xc2u8..=0xc3, 0x80u8..=0x9f, any::<u8>()],
                0..200,
            ),
            size in 1usize..20,
        ) {
            let whole = filter([bytes.as_slice()]);
            prop_assert!(!whole.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(filter(bytes.chunks(size)), whole);
        }
    }
}
