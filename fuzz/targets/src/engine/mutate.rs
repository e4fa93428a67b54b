//! Makes inputs from other inputs.

use super::random::Random;
use super::token::token;

/// The longest input.
pub(super) const LONGEST: usize = 1 << 16;

/// Numbers at the boundaries of arithmetic and limits.
const EDGES: [u64; 20] = [
    0,
    1,
    7,
    63,
    64,
    127,
    128,
    255,
    256,
    0x7fff,
    0xffff,
    1 << 16,
    0x7fff_ffff,
    1 << 31,
    0xffff_ffff,
    1 << 32,
    (1 << 53) + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Changes inputs.
pub(super) struct Mutator<'a> {
    pub(super) random: Random,
    pub(super) words: &'a [&'a str],
}

impl Mutator<'_> {
    /// Makes another input, possibly with a part of `other`.
    pub(super) fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        // Usually few changes: an input that is still mostly valid gets further.
        let most = 1 << self.random.below(4);
        let changes = 1 + self.random.below(most);
        for _ in 0..changes {
            self.change(&mut bytes, other);
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        match self.random.below(16) {
            0 => self.flip(bytes),
            1 => self.set(bytes),
            2 => self.remove(bytes),
            3 => self.insert_any(bytes),
            4 => self.repeat(bytes),
            5 => self.splice(bytes, other),
            6 => self.graft(bytes, other),
            7 => self.binary_edge(bytes),
            8 => self.decimal_edge(bytes),
            9 => self.step(bytes),
            10..=13 => self.exchange(bytes, other),
            _ => self.word(bytes),
        }
    }

    /// A random position and a short length.
    fn part(&mut self, length: usize) -> (usize, usize) {
        let start = self.random.below(length + 1);
        let most = 1usize << self.random.below(8);
        let count = self.random.below(most.min(length - start) + 1);
        (start, start + count)
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let (place, bit) = (self.random.below(bytes.len()), self.random.below(8));
        if let Some(byte) = bytes.get_mut(place) {
            *byte ^= 1 << bit;
        }
    }

    fn set(&mut self, bytes: &mut [u8]) {
        let (place, value) = (self.random.below(bytes.len()), self.random.byte());
        if let Some(byte) = bytes.get_mut(place) {
            *byte = value;
        }
    }

    /// Increments or decrements a byte.
    fn step(&mut self, bytes: &mut [u8]) {
        let (place, up) = (self.random.below(bytes.len()), self.random.below(2) == 0);
        if let Some(byte) = bytes.get_mut(place) {
            *byte = byte.wrapping_add(if up { 1 } else { u8::MAX });
        }
    }

    fn remove(&mut self, bytes: &mut Vec<u8>) {
        let (start, end) = self.part(bytes.len());
        bytes.drain(start..end);
    }

    fn insert_any(&mut self, bytes: &mut Vec<u8>) {
        let (start, _) = self.part(bytes.len());
        let count = 1 + self.random.below(8);
        let made: Vec<u8> = (0..count).map(|_| self.random.byte()).collect();
        bytes.splice(start..start, made);
    }

    /// Repeats a part a few times or very often, for nested, long or quadratic cases.
    fn repeat(&mut self, bytes: &mut Vec<u8>) {
        let (start, end) = self.part(bytes.len());
        let times = [1, 2, 9, 130, 1200][self.random.below(5)];
        let room = (LONGEST.saturating_sub(bytes.len())) / (end - start).max(1);
        let copies = bytes[start..end].repeat(times.min(room));
        bytes.splice(end..end, copies);
    }

    /// Joins the front of one input and the back of the other.
    fn splice(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let (kept, _) = self.part(bytes.len());
        let (from, _) = self.part(other.len());
        bytes.truncate(kept);
        bytes.extend_from_slice(&other[from..]);
    }

    /// Replaces a part by a part of the other.
    fn graft(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let (start, end) = self.part(bytes.len());
        let (from, to) = self.part(other.len());
        bytes.splice(start..end, other[from..to].iter().copied());
    }

    /// Replaces a string, number, list or table by another, which keeps the grammar valid.
    fn exchange(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let (from, _) = self.part(bytes.len());
        let Some((start, end)) = token(bytes, from) else {
            return self.set(bytes);
        };
        let (from, _) = self.part(other.len());
        let own = bytes.clone();
        let source = if self.random.below(2) == 0 {
            other
        } else {
            &own
        };
        let Some((first, last)) = token(source, from.min(source.len())) else {
            return self.set(bytes);
        };
        let end = if self.random.below(8) == 0 {
            start
        } else {
            end
        };
        bytes.splice(start..end, source[first..last].iter().copied());
    }

    fn edge(&mut self) -> u64 {
        let edge = self.random.pick(&EDGES).copied().unwrap_or_default();
        match self.random.below(4) {
            0 => edge.wrapping_add(1),
            1 => edge.wrapping_sub(1),
            _ => edge,
        }
    }

    /// Writes a boundary number in little-endian, as all numbers on the wire are.
    fn binary_edge(&mut self, bytes: &mut Vec<u8>) {
        let number = self.edge().to_le_bytes();
        let width = [1, 2, 4, 8][self.random.below(4)];
        let (start, _) = self.part(bytes.len());
        let end = (start + width).min(bytes.len());
        bytes.splice(start..end, number[..width].iter().copied());
    }

    /// Replaces a number in the text by a boundary number.
    fn decimal_edge(&mut self, bytes: &mut Vec<u8>) {
        let edge = self.edge();
        let text = match self.random.below(4) {
            0 => format!("-{edge}"),
            1 => format!("{edge}.5e3"),
            _ => edge.to_string(),
        };
        let (from, _) = self.part(bytes.len());
        let digits = |part: &[u8]| part.iter().position(u8::is_ascii_digit);
        let start = from + digits(&bytes[from..]).unwrap_or(0);
        let length = bytes[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        let end = start + length.count();
        bytes.splice(start..end, text.into_bytes());
    }

    fn word(&mut self, bytes: &mut Vec<u8>) {
        let Some(word) = self.random.pick(self.words) else {
            return self.set(bytes);
        };
        let word = word.as_bytes();
        let (start, end) = self.part(bytes.len());
        let end = match self.random.below(3) {
            0 => end,
            1 => (start + word.len()).min(bytes.len()),
            _ => start,
        };
        bytes.splice(start..end, word.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_input_grows_without_end() {
        let mut mutator = Mutator {
            random: Random::new(1),
            words: &["word"],
        };
        let mut input = b"{\"a\": 12}".to_vec();
        for _ in 0..20_000 {
            input = mutator.mutate(&input, b"other");
            assert!(input.len() <= LONGEST);
        }
    }

    #[test]
    fn each_kind_of_change_happens() {
        let mut mutator = Mutator {
            random: Random::new(2),
            words: &["dictionary"],
        };
        let input = b"the number 12345 in the middle".as_slice();
        let made: Vec<String> = (0..5000)
            .map(|_| mutator.mutate(input, b"of ANOTHER input"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect();
        for part in [
            "dictionary",
            "ANOTHER",
            "18446744073709551615",
            "-9223372036854775808",
        ] {
            assert!(made.iter().any(|text| text.contains(part)), "{part}");
        }
        let long = made.iter().filter(|text| text.len() > 1000).count();
        assert!(long > 5, "{long} were made long");
    }
}
