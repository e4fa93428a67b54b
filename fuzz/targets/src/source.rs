//! Makes choices from the bytes of an input, for targets whose input is not text.

/// Takes bytes from the front of the input; returns zeros at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns one of the choices. A single choice takes no bytes.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let place = usize::from(self.short()) % choices.len().max(1);
        choices.get(place).copied()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}

/// Splits the input into a text and the bytes after the first zero byte, which no valid text contains.
pub(crate) fn text_and_rest(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}
