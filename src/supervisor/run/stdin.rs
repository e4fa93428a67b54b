//! A guest's standard input.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use sandfork_jail::sys::write_signals;

/// The source of standard input.
#[derive(Clone, Debug)]
pub enum Stdin {
    /// Standard input is empty.
    Nothing,
    /// The caller's open file, which all runs share.
    Descriptor(Arc<OwnedFd>),
    /// These bytes, from the start for each run.
    Bytes(Arc<Vec<u8>>),
}

/// The capacity that every pipe has: the default is 64 KiB, but a user with many pipes gets single pages (pipe(7)).
const PIPE_CAPACITY: usize = 4096;

impl Stdin {
    /// Opens the descriptor that becomes the guest's standard input.
    pub fn open(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Nothing => Ok(File::open("/dev/null")?.into()),
            Self::Descriptor(descriptor) => descriptor.try_clone(),
            Self::Bytes(bytes) => feed(bytes),
        }
    }
}

/// Returns a pipe that delivers the bytes. A memfd is not an option: the guest could execute it on kernels that have no
/// flag against that.
fn feed(bytes: &Arc<Vec<u8>>) -> io::Result<OwnedFd> {
    let (reader, mut writer) = io::pipe()?;
    if bytes.len() <= PIPE_CAPACITY {
        writer.write_all(bytes)?;
        return Ok(reader.into());
    }
    let bytes = Arc::clone(bytes);
    // The thread ends with the guest at the latest: writing fails once all read ends are closed.
    thread::Builder::new().spawn(move || write_signals::as_errors(|| writer.write_all(&bytes)))?;
    Ok(reader.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Read;

    use super::*;

    fn read(stdin: &Stdin) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::from(stdin.open().unwrap())
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    }

    #[test]
    fn each_run_reads_all_bytes() {
        for length in [0, 1, PIPE_CAPACITY, PIPE_CAPACITY + 1, 1 << 20] {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            let stdin = Stdin::Bytes(Arc::new(bytes.clone()));
            assert!(read(&stdin) == bytes && read(&stdin.clone()) == bytes);
        }
        assert_eq!(read(&Stdin::Nothing), b"");
    }

    #[test]
    fn writer_thread_ends_if_the_guest_does_not_read() {
        let stdin = Stdin::Bytes(Arc::new(vec![0; 1 << 20]));
        drop(stdin.open().unwrap());
        let Stdin::Bytes(bytes) = &stdin else {
            unreachable!()
        };
        // The writing thread has released its reference.
        while Arc::strong_count(bytes) > 1 {
            thread::yield_now();
        }
    }
}
