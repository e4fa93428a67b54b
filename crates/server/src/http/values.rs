//! Estimates the memory of parsed JSON values.

use std::io::{self, Write};

use serde::Serialize;

use super::budget::serialization_failure;
use crate::failure::Failure;

/// Counts the bytes of a JSON text and the values in it.
#[derive(Debug, Default)]
struct Counter {
    bytes: u64,
    values: u64,
    in_string: bool,
    escaped: bool,
}

impl Counter {
    /// The bytes of a value: itself, its key, and its share of the container, including spare capacity.
    const VALUE: u64 = 64;
    /// The size of an object in values: a B-tree node with room for eleven entries, allocated with the first key.
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

/// Returns the memory of a JSON text and its parsed values together: `[0,0]` takes a few bytes, each parsed value many.
pub fn memory_of_values(text: &[u8]) -> u64 {
    let mut counter = Counter::default();
    counter.count(text);
    counter.memory()
}

/// Returns the same estimate for the JSON text of a value, without building the text.
///
/// # Errors
/// Returns an error if the value cannot be serialized.
pub fn memory_as_values(value: &impl Serialize) -> Result<u64, Failure> {
    let mut counter = Counter::default();
    serde_json::to_writer(&mut counter, value).map_err(|error| serialization_failure(&error))?;
    Ok(counter.memory())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn value_and_its_text_have_the_same_estimate() {
        let value = json!({ "a": ["\\\",[{:", 1, [], {}], "b\"": null });
        let memory = memory_as_values(&value).expect("JSON");
        assert_eq!(memory, memory_of_values(value.to_string().as_bytes()));
        let values = 2 * Counter::OBJECT + 3 + 2 + 3;
        assert_eq!(
            memory,
            value.to_string().len() as u64 + values * Counter::VALUE
        );
    }
}
