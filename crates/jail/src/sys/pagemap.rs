//! Finds the private pages of a process (Documentation/admin-guide/mm/pagemap.rst, `PAGEMAP_SCAN`, since Linux 6.7).

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::check;

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
/// Since Linux 6.15.
const IS_GUARD: u64 = 1 << 8;

/// The advice that installs guard pages (asm-generic/mman-common.h, since Linux 6.13).
pub const MADV_GUARD_INSTALL: libc::c_int = 102;
/// The advice that turns guard pages back into ordinary ones.
pub const MADV_GUARD_REMOVE: libc::c_int = 103;

const IS_OWN: u64 = IS_PRESENT | IS_SWAPPED;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    3 << 30 | (size_of::<Scan>() as libc::c_ulong) << 16 | 0x66 << 8 | 16;

/// The maximum number of ranges per call.
const AT_ONCE: usize = 512;

/// Pages of a process, as ordered ranges.
#[derive(Debug, Default)]
pub struct Pages {
    /// Private pages: in memory or swapped out, neither file-backed nor the zero page.
    pub own: Vec<Range<u64>>,
    /// Guard pages ([`MADV_GUARD_INSTALL`]), which the process may not touch although the protection of their mapping
    /// allows it. The C library has one below the stack of each thread.
    pub guards: Vec<Range<u64>>,
}

/// Appends the pages within a range. `E2BIG` if that would exceed `most` ranges.
pub fn scan(
    pagemap: BorrowedFd,
    within: Range<u64>,
    found: &mut Pages,
    most: usize,
) -> Result<(), Errno> {
    let mut regions = [Region::default(); AT_ONCE];
    let mut returned = IS_OWN | IS_GUARD;
    let mut start = within.start;
    while start < within.end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start,
            end: within.end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: AT_ONCE as u64,
            category_inverted: IS_ZERO | IS_FILE,
            category_mask: IS_ZERO | IS_FILE,
            category_anyof_mask: IS_OWN,
            return_mask: returned,
            ..Scan::default()
        };
        // SAFETY: `scan` is a live `struct pm_scan_arg`, and `vec` has room for as many regions as `vec_len` states.
        let count =
            check(unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) }.into());
        if count == Err(Errno::EINVAL) && returned & IS_GUARD != 0 {
            // A kernel before 6.15 does not know the guard category.
            returned = IS_OWN;
            continue;
        }
        let count = usize::try_from(count?).unwrap_or(0).min(AT_ONCE);
        for region in &regions[..count] {
            let is_guard = region.categories & IS_GUARD != 0;
            let ranges = if is_guard {
                &mut found.guards
            } else {
                &mut found.own
            };
            match ranges.last_mut() {
                Some(last) if last.end == region.start => last.end = region.end,
                _ => ranges.push(region.start..region.end),
            }
            if found.own.len() + found.guards.len() > most {
                return Err(Errno::E2BIG);
            }
        }
        if scan.walk_end <= start {
            return Err(Errno::EIO);
        }
        start = scan.walk_end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn written_pages_are_found() {
        const PAGE: usize = 4096;
        let mut memory = vec![0_u8; 64 * PAGE];
        let first = memory.as_ptr().align_offset(PAGE);
        let start = memory.as_ptr() as u64 + first as u64;
        let pagemap = File::open("/proc/self/pagemap").expect("it is this process's own");
        memory[first + 20 * PAGE] = 1;
        let guard = start + 25 * PAGE as u64;
        // SAFETY: the page is within the buffer, and nothing touches it before the guard is removed.
        let advise = |advice| unsafe { libc::madvise(guard as *mut _, PAGE, advice) };
        let is_guarded = advise(MADV_GUARD_INSTALL) == 0;
        let mut found = Pages::default();
        let within = start + 10 * PAGE as u64..start + 30 * PAGE as u64;
        let scanned = scan(pagemap.as_fd(), within.clone(), &mut found, 10);
        let refused = scan(pagemap.as_fd(), within.clone(), &mut Pages::default(), 0);
        advise(MADV_GUARD_REMOVE);
        match scanned {
            // Before Linux 6.7.
            Err(Errno::ENOTTY) => return,
            other => other.expect("it is supported"),
        }
        let written = start + 20 * PAGE as u64;
        assert!(
            found.own.iter().any(|range| range.contains(&written)),
            "{found:x?}"
        );
        assert!(
            found.own.iter().all(|range| within.contains(&range.start)),
            "{found:x?}"
        );
        let guards: Vec<_> = is_guarded
            .then_some(guard..guard + PAGE as u64)
            .into_iter()
            .collect();
        assert_eq!(found.guards, guards);
        assert_eq!(refused, Err(Errno::E2BIG));
    }
}
