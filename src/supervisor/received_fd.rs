//! Checks files that a guest passes, before any process maps them.
//!
//! A file that can still change is a trap: if it shrinks, it kills a process that reads its mapping (SIGBUS); if it is
//! written to, it can change between check and use. A file with holes costs nothing to make and gigabytes to read. So a
//! passed file is accepted only if it is sealed (fcntl(2), `F_ADD_SEALS`) and all its pages exist, which means that the
//! guest's own limits have paid for them.
//!
//! A guest that cannot create memfds passes an unsealed file of its own. Its filter or Linux before 6.3 may refuse
//! memfds, or its Python may be built with an older C library. An unsealed file is copied. The supervisor pays for the
//! copy, so the file may not be larger than the guest's own files can be. It may be a host file that the guest can
//! read.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};

use super::descriptors::read_in_pieces;
use sandfork_jail::sys::sealed::{self, is_unchanging};
use sandfork_jail::sys::{errno_of, write_signals};

/// The unit of `st_blocks` (stat(2)), bytes.
const BLOCK: u64 = 512;

/// Returns a file of `wanted` bytes that can no longer change: the passed file if it is sealed, or else a copy if it
/// has at most `most` bytes. The error says why the file is refused, as a sentence about the guest.
pub fn accept(passed: OwnedFd, wanted: u64, most: u64) -> Result<OwnedFd, String> {
    let unreadable =
        |errno: Errno| format!("the file it passed could not be read: {}", errno.desc());
    let stat = fstat(&passed).map_err(unreadable)?;
    let flags = fcntl(&passed, FcntlArg::F_GETFL).map_err(unreadable)?;
    let is_readable = flags & OFlag::O_ACCMODE.bits() != OFlag::O_WRONLY.bits();
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let held = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
    if kind != SFlag::S_IFREG || size != wanted || held < wanted || !is_readable {
        return Err(format!(
            "it passed a descriptor that is not a readable file of {wanted} bytes"
        ));
    }
    if is_unchanging(passed.as_fd()) {
        return Ok(passed);
    }
    if wanted > most {
        return Err(format!(
            "it passed an unsealed file of {wanted} bytes; the limit is {most}"
        ));
    }
    copy(&File::from(passed), wanted).map_err(unreadable)
}

/// Returns a sealed copy of the first `length` bytes.
fn copy(from: &File, length: u64) -> Result<OwnedFd, Errno> {
    let mut to = File::from(memory_file()?);
    let write = |piece: &[u8]| write_signals::as_errors(|| to.write_all(piece));
    read_in_pieces(from, 0..length, write).map_err(errno_of)?;
    sealed::seal(to.as_fd())?;
    Ok(to.into())
}

/// Returns a sealed file with these bytes.
pub fn sealed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<OwnedFd, Errno> {
    let mut file = File::from(memory_file()?);
    for piece in pieces {
        write_signals::as_errors(|| file.write_all(piece)).map_err(errno_of)?;
    }
    sealed::seal(file.as_fd())?;
    Ok(file.into())
}

fn memory_file() -> Result<OwnedFd, Errno> {
    sealed::memory_file(c"sandfork-value")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn unsealed(bytes: &[u8]) -> OwnedFd {
        let file = File::from(memory_file().expect("a new memfd"));
        file.write_all_at(bytes, 0).expect("the file is writable");
        file.into()
    }

    #[test]
    fn sealed_file_is_accepted_unchanged() {
        let bytes = vec![7; 100_000];
        let file = sealed([bytes.as_slice()]).expect("a sealed file");
        let inode = fstat(&file).expect("fstat(2) succeeds").st_ino;
        let accepted = accept(file, 100_000, 0).expect("the sealed file is accepted");
        assert_eq!(fstat(&accepted).expect("fstat(2) succeeds").st_ino, inode);
    }

    #[test]
    fn unsealed_file_is_copied_into_a_sealed_one() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let size = bytes.len() as u64;
        let refused = accept(unsealed(&bytes), size, size - 1).expect_err("the file is too large");
        let why = "it passed an unsealed file of 3000000 bytes; the limit is 2999999";
        assert_eq!(refused, why);
        let accepted = accept(unsealed(&bytes), size, size).expect("the file is copied");
        let copy = File::from(accepted);
        let mut read = vec![0; bytes.len()];
        copy.read_exact_at(&mut read, 0)
            .expect("the copy is readable");
        assert_eq!(read, bytes);
        assert!(copy.set_len(1).is_err());
        assert!(copy.write_at(b"x", 0).is_err());
    }

    #[test]
    fn unreadable_or_incomplete_files_are_refused() {
        let holes = File::from(memory_file().expect("a new memfd"));
        holes.set_len(1 << 30).expect("the file grows");
        assert!(accept(holes.into(), 1 << 30, 1 << 30).is_err(), "holes");
        assert!(accept(unsealed(b"abc"), 4, 4).is_err(), "another size");
        let (pipe, _other) = nix::unistd::pipe().expect("a new pipe");
        assert!(accept(pipe, 0, 0).is_err(), "a pipe");
        let file = sealed([b"abc".as_slice()]).expect("a sealed file");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let written = File::options().write(true).open(path);
        let written = written.expect("the file opens for writing");
        assert!(accept(written.into(), 3, 3).is_err(), "it cannot be read");
    }
}
