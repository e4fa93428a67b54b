//! Has fork(2) copy pages eagerly, instead of one page fault for each when the child writes to it.
//!
//! The kernel copies a pinned page at the fork: a device may continue to write to it, so the page must stay with the
//! parent (`copy_present_page` of mm/memory.c, since Linux 5.11). Buffers that are registered with an io_uring are
//! pinned until the ring is closed (io_uring_register(2)). No I/O is ever submitted to this ring.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::uio::pread;

use super::descriptors::owned;
use super::memory::Mapping;
use super::process::page_size;
use super::{check, procfs};

/// Pagemap flag: the page is in memory (Documentation/admin-guide/mm/pagemap.rst).
const IS_PRESENT: u64 = 1 << 63;
/// Pagemap flag: the page is file-backed or shared.
const IS_FILE: u64 = 1 << 61;
/// Pagemap flag: the page is mapped by one process only (since Linux 4.2).
const IS_EXCLUSIVE: u64 = 1 << 56;

const ENTRY: usize = size_of::<u64>();
const AT_ONCE: usize = 512;

/// Finds the pages that a child of this process has copied, so that the two no longer share them. `pagemap` must be
/// this process's, and the child must be its only one and still live.
///
/// Leaves out huge pages: pinning a small page pins the whole huge page, which each fork would then copy.
pub fn find_copied(proc: BorrowedFd, pagemap: BorrowedFd) -> Result<Vec<Range<usize>>, Errno> {
    let maps = procfs::read(proc, "self/maps")?;
    let mut found = Vec::new();
    let mappings = maps.lines().filter_map(Mapping::parse);
    for mapping in mappings.filter(Mapping::is_written_privately) {
        for within in mapping.outside_huge_pages() {
            find_exclusive(pagemap, within, &mut found)?;
        }
    }
    Ok(found)
}

/// Appends the pages of a range that only this process maps.
fn find_exclusive(
    pagemap: BorrowedFd,
    within: Range<usize>,
    found: &mut Vec<Range<usize>>,
) -> Result<(), Errno> {
    let page = usize::try_from(page_size()).map_err(|_| Errno::EOVERFLOW)?;
    let mut entries = [0; ENTRY * AT_ONCE];
    let mut start = within.start;
    while start < within.end {
        let wanted = ((within.end - start) / page).min(AT_ONCE) * ENTRY;
        let offset = i64::try_from(start / page * ENTRY).map_err(|_| Errno::EOVERFLOW)?;
        let length = pread(pagemap, &mut entries[..wanted], offset)?;
        if length < ENTRY {
            return Err(Errno::EIO);
        }
        for entry in entries[..length].as_chunks::<ENTRY>().0 {
            let flags = u64::from_ne_bytes(*entry) & (IS_PRESENT | IS_FILE | IS_EXCLUSIVE);
            if flags == IS_PRESENT | IS_EXCLUSIVE {
                match found.last_mut() {
                    Some(last) if last.end == start => last.end += page,
                    _ => found.push(start..start + page),
                }
            }
            start += page;
        }
    }
    Ok(())
}

/// Pins pages, so that each later fork copies them eagerly until the returned ring is closed.
pub fn pin(pages: &[Range<usize>]) -> Result<OwnedFd, Errno> {
    const IORING_REGISTER_BUFFERS: libc::c_uint = 0;
    // `struct io_uring_params` of linux/io_uring.h: no flags set, and room for the kernel's output.
    let mut parameters = [0_u64; 15];
    // SAFETY: `parameters` is live and as large as the structure that the kernel reads and writes.
    let ring = owned(check(unsafe {
        libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr())
    })?);
    let buffer = |range: &Range<usize>| libc::iovec {
        iov_base: range.start as *mut libc::c_void,
        iov_len: range.len(),
    };
    let buffers: Vec<libc::iovec> = pages.iter().map(buffer).collect();
    // SAFETY: the array is live and has as many entries as passed. The kernel only pins the memory that they describe,
    // and holds the pages itself if they are unmapped later. No operation that could use them is submitted.
    check(unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            IORING_REGISTER_BUFFERS,
            buffers.as_ptr(),
            buffers.len(),
        )
    })?;
    Ok(ring)
}
