//! The memory that values of JSON take.

use std::io::{self, Write};

use serde::Serialize;

use super::budget::unwritten;
use crate::failure::Failure;

/// Counts the bytes of a text of JSON, and the values in it.
#[derive(Debug, Default)]
struct Counter {
    bytes: u64,
    values: u64,
    in_string: bool,
    escaped: bool,
}

impl Counter {
    /// A value, its name and its share of what contains it, with the room that grows ahead.
    const VALUE: u64 = 64;
    /// So many values take what an object takes with its first name: a node of a tree, with room for eleven.
    const OBJECT: u64 = 10;

    fn count(&mut self, text: &[u8]) {
        self.bytes += text.len() as u64;
        for byte in text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                b',' | b':' | b'[' if !self.in_string => self.values += 1,
                b'{' if !self.in_string => self.values += Self::OBJECT,
                _ => {}
            }
        }
    }

    const fn memory(&self) -> u64 {
        self.bytes + self.values * Self::VALUE
    }
}

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The memory that the values of a text of JSON may take together with it: `[0,0]` is a few bytes, and each value is many.
pub fn memory_of_values(text: &[u8]) -> u64 {
    let mut counter = Counter::default();
    counter.count(text);
    counter.memory()
}

/// The same of the text that a value has in JSON. Nothing is kept of it.
///
/// # Errors
/// If it cannot be written.
pub fn memory_as_values(value: &impl Serialize) -> Result<u64, Failure> {
    let mut counter = Counter::default();
    serde_json::to_writer(&mut counter, value).map_err(|error| unwritten(&error))?;
    Ok(counter.memory())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_has_the_memory_of_its_text() {
        let value = json!({ "a": ["\\\",[{:", 1, [], {}], "b\"": null });
        let memory = memory_as_values(&value).expect("it is JSON");
        assert_eq!(memory, memory_of_values(value.to_string().as_bytes()));
        let values = 2 * Counter::OBJECT + 3 + 2 + 3;
        assert_eq!(
            memory,
            value.to_string().len() as u64 + values * Counter::VALUE
        );
    }
}
