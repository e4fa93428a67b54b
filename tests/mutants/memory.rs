//! Reads and writes the memory of a stopped process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use nix::unistd::Pid;

/// Longer than any string or structure that the jail passes to a call.
const LONGEST: usize = 4096;

pub struct Memory(File);

impl Memory {
    /// Opens the memory of a traced process.
    pub fn of(pid: Pid) -> io::Result<Self> {
        let path = format!("/proc/{pid}/mem");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self(file))
    }

    pub fn read(&self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }

    /// Reads one 64-bit word.
    pub fn word(&self, address: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.0.read_exact_at(&mut word, address)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Reads a C string; empty for a null pointer.
    pub fn text(&self, address: u64) -> io::Result<String> {
        let mut text = Vec::new();
        while address != 0 && text.len() < LONGEST {
            let mut byte = [0];
            self.0
                .read_exact_at(&mut byte, address + text.len() as u64)?;
            match byte {
                [0] => break,
                [byte] => text.push(byte),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
