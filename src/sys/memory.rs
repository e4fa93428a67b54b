//! This process's own memory map (proc(5), `/proc/self/maps`; mprotect(2); madvise(2)).

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::check;
use super::process::page_size;

/// Lets children of this process start with the page tables of its program text.
///
/// fork(2) copies the page tables of a mapping only once something in it was written to; those of
/// an untouched file mapping are left for the child to fault in again, page by page, which for an
/// interpreter costs more than all of its jail. So one byte of each read-only file mapping is
/// written with the value that it has, and the whole is brought in.
///
/// Returns how many mappings were prepared. One that the system does not let us write to (a
/// hardened kernel's rule against text relocations) is left as it is: slower, not wrong.
pub fn share_page_tables(proc: BorrowedFd) -> Result<usize, Errno> {
    let maps = read_all(proc)?;
    Ok(maps
        .lines()
        .filter_map(parse)
        .filter(|mapping| prepare(mapping).is_ok())
        .count())
}

struct Mapping {
    start: usize,
    length: usize,
    protection: libc::c_int,
}

/// A private, read-only mapping of a file; `None` for any other line.
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let path = fields.nth(3)?;
    let protection = match permissions {
        "r-xp" => libc::PROT_READ | libc::PROT_EXEC,
        "r--p" => libc::PROT_READ,
        _ => return None,
    };
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    path.starts_with('/').then_some(Mapping {
        start,
        length: end - start,
        protection,
    })
}

fn prepare(mapping: &Mapping) -> Result<(), Errno> {
    const MADV_POPULATE_READ: libc::c_int = 22;
    let start = mapping.start as *mut libc::c_void;
    let writable = mapping.protection | libc::PROT_WRITE;
    // SAFETY: the range is one whole mapping of this process, which has one thread, so that it
    // cannot be unmapped meanwhile; execution and reading stay allowed throughout. The byte is
    // written with its own value, into a private copy of its page.
    unsafe {
        check(libc::c_long::from(libc::mprotect(
            start,
            mapping.length,
            writable,
        )))?;
        let byte = start.cast::<u8>();
        byte.write_volatile(byte.read_volatile());
        check(libc::c_long::from(libc::mprotect(
            start,
            mapping.length,
            mapping.protection,
        )))?;
        // Only a matter of speed, and only since Linux 5.14.
        libc::madvise(start, mapping.length, MADV_POPULATE_READ);
    }
    Ok(())
}

fn read_all(proc: BorrowedFd) -> Result<String, Errno> {
    let file = openat(
        proc,
        "self/maps",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut text = Vec::new();
    let mut chunk = vec![0; usize::try_from(page_size()).unwrap_or(4096)];
    loop {
        match nix::unistd::read(&file, &mut chunk)? {
            0 => return String::from_utf8(text).map_err(|_| Errno::EILSEQ),
            length => text.extend_from_slice(&chunk[..length]),
        }
    }
}
