//! Lets a guest draw on the caller's terminal, and nothing else.
//!
//! The filter passes the control sequences listed here and drops all others: those that reach beyond the screen (title,
//! clipboard, files, programs), and those that make the terminal reply. If the guest has ended meanwhile, a reply would
//! be typed into the caller's shell.

/// The maximum length of a control sequence, in bytes. No drawing sequence is longer.
const MAX_SEQUENCE: usize = 64;

/// The private modes that a guest may set: cursor keys, reverse video, origin, wrapping, the cursor and its blinking,
/// mouse and focus reports, the alternate screen, bracketed paste, and synchronized output. `tty::RESET` resets them.
/// The 132-column mode is not included, because some terminals clear the screen when it is reset.
pub const MODES: [u16; 20] = [
    1, 5, 6, 7, 12, 25, 45, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1047, 1048, 1049, 2004,
    2026,
];

/// The final bytes of sequences with numeric parameters only: move, erase, insert, delete, scroll, repeat, tab stops,
/// colours, margins, save and restore.
const PLAIN_ENDS: &[u8] = b"@ABCDEFGHIJKLMPSTXZ`abdefgmrsu";

/// Filters one output stream.
#[derive(Debug, Default)]
pub struct Drawing {
    state: State,
    /// The incomplete control sequence or character.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Plain text.
    #[default]
    Text,
    /// After an escape character.
    Escape,
    /// After an escape character and a character set designator or `#`.
    Designation,
    /// In a control sequence (CSI).
    Sequence,
    /// In a control string (OSC, DCS, APC, PM, SOS), until its terminator.
    String,
    /// In a control string after an escape character, which may terminate the string.
    StringEscape,
}

impl Drawing {
    /// Appends the drawable part of `input` to `out`.
    pub fn filter(&mut self, input: &[u8], out: &mut Vec<u8>) {
        for &byte in input {
            self.take(byte, out);
        }
    }

    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            // CAN and SUB abort every sequence.
            (State::Escape | State::Designation | State::Sequence, 0x18 | 0x1a)
            | (State::String | State::StringEscape, 0x07 | 0x18 | 0x1a)
            | (State::StringEscape, b'\\') => self.begin(State::Text),
            (State::String, 0x1b) => self.state = State::StringEscape,
            (State::String, _) => {}
            (State::Text, _) => self.text(byte, out),
            // An escape character begins a new sequence.
            (_, 0x1b) => self.begin(State::Escape),
            (State::Escape | State::StringEscape, _) => self.escape(byte, out),
            (State::Designation, b'0'..=b'~') => self.end(byte, out),
            (State::Sequence, 0x20..=0x3f) if self.held.len() < MAX_SEQUENCE => {
                self.held.push(byte);
            }
            (State::Sequence, 0x40..=0x7e) if draws(&self.held[2..], byte) => self.end(byte, out),
            (State::Designation | State::Sequence, _) => self.begin(State::Text),
        }
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.held.clear();
    }

    fn end(&mut self, byte: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.held);
        out.push(byte);
        self.begin(State::Text);
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.held = vec![0x1b];
        match byte {
            b'[' => {
                self.held.push(byte);
                self.state = State::Sequence;
            }
            b'(' | b')' | b'*' | b'+' | b'#' => {
                self.held.push(byte);
                self.state = State::Designation;
            }
            b']' | b'P' | b'X' | b'^' | b'_' => self.begin(State::String),
            // Save and restore the cursor, keypad, line feeds, tab stop, reset.
            b'7' | b'8' | b'=' | b'>' | b'D' | b'E' | b'H' | b'M' | b'c' => self.end(byte, out),
            _ => self.begin(State::Text),
        }
    }

    fn text(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte < 0x80 {
            if !self.held.is_empty() {
                self.held.clear();
                push(char::REPLACEMENT_CHARACTER, out);
            }
            match byte {
                0x1b => self.begin(State::Escape),
                // Bell, backspace, tab, line feeds, carriage return, shifts of the character set.
                0x07..=0x0f | 0x20..=0x7e => out.push(byte),
                _ => {}
            }
            return;
        }
        self.held.push(byte);
        match std::str::from_utf8(&self.held) {
            Ok(text) => {
                // U+0080 to U+009F are control characters, some of which begin sequences.
                out.extend(
                    text.chars()
                        .filter(|c| !c.is_control())
                        .collect::<String>()
                        .bytes(),
                );
                self.held.clear();
            }
            Err(error) if error.error_len().is_some() => {
                // The byte may begin the next character.
                let begins = self.held.len() > 1 && byte >= 0xc2;
                self.held.clear();
                push(char::REPLACEMENT_CHARACTER, out);
                self.held.extend(begins.then_some(byte));
            }
            Err(_) => {}
        }
    }
}

/// Returns whether a control sequence with these parameters and this final byte only draws.
fn draws(parameters: &[u8], end: u8) -> bool {
    let is_plain = parameters
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
    match (parameters, end) {
        // Insert mode and soft reset. Other modes lock the keyboard, or change what its keys send.
        (b"4", b'h' | b'l') | (b"!", b'p') => true,
        ([b'?', modes @ ..], b'h' | b'l') => modes.split(|byte| *byte == b';').all(is_mode),
        ([b'?', rest @ ..], b'J' | b'K') => rest.iter().all(u8::is_ascii_digit),
        // The cursor's shape.
        ([shape @ .., b' '], b'q') => shape.iter().all(u8::is_ascii_digit),
        _ => PLAIN_ENDS.contains(&end) && is_plain,
    }
}

fn is_mode(mode: &[u8]) -> bool {
    let number = std::str::from_utf8(mode).ok();
    number
        .and_then(|number| number.parse().ok())
        .is_some_and(|number| MODES.contains(&number))
}

fn push(character: char, out: &mut Vec<u8>) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Drawing;

    /// Returns the filtered text, after checking that the chunk size makes no difference.
    fn filtered(input: &[u8]) -> String {
        let pieces = |size| {
            let (mut drawing, mut out) = (Drawing::default(), Vec::new());
            input
                .chunks(size)
                .for_each(|piece| drawing.filter(piece, &mut out));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(pieces(1), pieces(input.len()));
        pieces(input.len())
    }

    #[test]
    fn output_of_an_editor_passes() {
        for text in [
            "plain\r\n\ttext na\u{ef}ve \u{1f40d}",
            "\x1b[?1049h\x1b[2J\x1b[1;1H\x1b[38;2;1;2;3mred\x1b[0m\x1b[?25l\x1b[?1000;1006h",
            "\x1b7\x1b[5;10r\x1b[K\x1b8\x1b(0qqq\x1b(B\x1b[4 q\x1bM\x1b[!p",
            "a\x08\x08\x07\x0e\x0f",
        ] {
            assert_eq!(filtered(text.as_bytes()), text);
        }
    }

    #[test]
    fn sequences_beyond_the_screen_and_queries_are_dropped() {
        let dropped: [&[u8]; 18] = [
            b"\x1b]0;title\x07",
            b"\x1b]52;c;cm0gLXJm\x1b\\",
            b"\x1b]52;c;?\x07",
            b"\x1b]10;?\x1b\\",
            b"\x1bP$q\"p\x1b\\",
            b"\x1bP+q544e\x1b\\",
            b"\x1b_Gi=1\x1b\\",
            b"\x1b[c\x1b[>c\x1b[=c\x1bZ",
            b"\x1b[5n\x1b[6n\x1b[?6n",
            b"\x1b[20t\x1b[21t\x1b[22t",
            b"\x1b[x\x1b[?1$p\x1b[2$w",
            b"\x1b[1;1;1;1;9;9*y",
            b"\x1b[>4;2m\x1b[>1u\x1b[?u",
            b"\x05\x00\x7f",
            b"\x1b[2h\x1b[12h\x1b[?3h",
            b"\x1b[?2031h\x1b[?2048h\x1b[?1000;2048h",
            "\u{9b}6n".as_bytes(),
            b"\x1b[i\x1b[4i\x1b[0q",
        ];
        for input in dropped {
            let left = filtered(input);
            assert!(matches!(left.as_str(), "" | "6n"), "{input:?}: {left:?}");
        }
        assert_eq!(filtered(b"\x9b6n\xe2\x82A"), "\u{fffd}6n\u{fffd}A");
    }

    #[test]
    fn nested_sequence_is_dropped() {
        assert_eq!(filtered(b"\x1b[\x1b[6n1m"), "1m");
        assert_eq!(filtered(b"\x1b]0;\x1b[6nx\x07y"), "x\x07y");
        assert_eq!(filtered(b"\x1b[6\x186n"), "6n");
        let long = [b"\x1b[".as_slice(), &[b'1'; 100], b"m"].concat();
        assert!(!filtered(&long).contains('\x1b'));
    }
}
