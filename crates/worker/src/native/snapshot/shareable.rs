//! Finds memory of this worker that its copies may share until they write to it.
//!
//! Copies map this memory from a file, with two observable differences: pages that are returned to the kernel
//! (madvise(2)) do not become zero, and a mapping cannot grow. The C library only ever unmaps its large blocks or grows
//! them by mremap(2). The first page of a block is left private, which makes mremap(2) fail, so the C library copies
//! the block instead. CPython only ever unmaps its arenas.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::native::python::ArenaLog;

/// The maximum number of ranges.
const MAX_RANGES: usize = 4096;

/// The maximum number of addresses that are checked for a block: a mapping may be full of other data.
const MAX_PROBES: usize = 16_384;

const PAGE: u64 = 4096;

/// The minimum size of a block that malloc(3) gives its own mapping (`M_MMAP_THRESHOLD`).
const MIN_BLOCK: u64 = 128 << 10;

/// The flag in the size field of such a block (`IS_MMAPPED` of glibc's malloc/malloc.c).
const IS_MAPPED: u64 = 2;
const FLAGS: u64 = 7;

/// The length of a block's header. Since glibc 2.43 the size field does not include it.
const HEADER: usize = 16;

/// CPython's arenas. Each entry is the page-aligned address, with the size in [`UNIT`]s in its low bits; 0 if free.
static ARENAS: [AtomicU64; 16_384] = [const { AtomicU64::new(0) }; 16_384];

/// The unit of arena sizes: arenas have 256 KiB, and 1 MiB since Python 3.10.
const UNIT: u64 = 256 << 10;

/// The log of arena allocations.
pub struct Arenas;

impl ArenaLog for Arenas {
    fn made(address: u64, size: u64) {
        let units = size / UNIT;
        if address.is_multiple_of(PAGE) && size.is_multiple_of(UNIT) && (1..PAGE).contains(&units) {
            let free = ARENAS.iter().find(|arena| arena.load(Relaxed) == 0);
            // An arena that does not fit into the table is copied, not shared.
            if let Some(arena) = free {
                arena.store(address | units, Relaxed);
            }
        }
    }

    fn freed(address: u64) {
        let of_address = |arena: &&AtomicU64| arena.load(Relaxed) & !(PAGE - 1) == address;
        if let Some(arena) = ARENAS.iter().find(of_address) {
            arena.store(0, Relaxed);
        }
    }
}

fn arenas() -> impl Iterator<Item = [u64; 2]> {
    let arenas = ARENAS.iter().map(|arena| arena.load(Relaxed));
    let arenas = arenas.filter(|arena| *arena != 0);
    arenas.map(|arena| {
        let (address, units) = (arena & !(PAGE - 1), arena & (PAGE - 1));
        [address, address + units * UNIT]
    })
}

/// Returns the ranges, in order. Without a /proc only arenas are found.
pub fn ranges() -> Vec<[u64; 2]> {
    let mut arenas: Vec<[u64; 2]> = arenas().collect();
    arenas.sort_unstable();
    let mut found = blocks(&arenas).unwrap_or_default();
    found.extend(arenas);
    found.sort_unstable();
    found.truncate(MAX_RANGES);
    found
}

/// Returns the C library's large blocks, without their first pages.
fn blocks(arenas: &[[u64; 2]]) -> Option<Vec<[u64; 2]>> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let memory = File::open("/proc/self/mem").ok()?;
    let mut found = Vec::new();
    let mut probes = 0;
    let mut last_end = 0;
    for line in maps.split(|byte| *byte == b'\n') {
        let Some((start, end)) = anonymous(line) else {
            continue;
        };
        // madvise(2) may have split a block into several mappings.
        let mut at = start.max(last_end);
        while at + PAGE <= end && probes < MAX_PROBES {
            if let Ok(place) = arenas.binary_search_by_key(&at, |[start, _]| *start) {
                at = arenas[place][1];
                continue;
            }
            probes += 1;
            match size_of_block(&memory, at) {
                Some(size) => {
                    found.push([at + PAGE, at + size]);
                    at += size;
                }
                None => at += PAGE,
            }
        }
        last_end = at;
    }
    Some(found)
}

/// Parses the bounds of a private writable anonymous mapping.
fn anonymous(line: &[u8]) -> Option<(u64, u64)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_writable = fields.next()? == "rw-p";
    let has_inode = fields.nth(2)? != "0";
    if !is_writable || has_inode || fields.next().is_some() {
        return None;
    }
    Some((
        u64::from_str_radix(start, 16).ok()?,
        u64::from_str_radix(end, 16).ok()?,
    ))
}

/// Returns the size of the block at an address, if there is one.
fn size_of_block(memory: &File, at: u64) -> Option<u64> {
    let mut header = [0; HEADER];
    memory.read_exact_at(&mut header, at).ok()?;
    let (before, size) = header.split_at(8);
    let words = [before, size].map(|word| word.try_into().map(u64::from_le_bytes));
    let [Ok(before), Ok(size)] = words else {
        return None;
    };
    size_in_header(before, size)
}

/// Returns the size of a block from the two words of its header; `None` if they are not a header.
fn size_in_header(before: u64, size: u64) -> Option<u64> {
    let (size, flags) = (size & !FLAGS, size & FLAGS);
    let sizes = [Some(size), size.checked_add(HEADER as u64)];
    let mut whole = sizes.into_iter().flatten();
    let size = whole.find(|size| size.is_multiple_of(PAGE))?;
    (before == 0 && flags == IS_MAPPED && size >= MIN_BLOCK).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_size_covers_its_mapping() {
        let header = |size| size_in_header(0, size);
        // A bytearray of 150,000,000 bytes, with glibc 2.36 and with 2.43.
        assert_eq!(header(0x8f0_e002), Some(0x8f0_e000));
        assert_eq!(header(0x8f0_dff2), Some(0x8f0_e000));
        assert_eq!(size_in_header(7, 0x8f0_e002), None);
        assert_eq!(header(0x8f0_e001), None);
        assert_eq!(header(0x8f0_d002 + 0x800), None);
        assert_eq!(header(0x1_f002), None);
        assert_eq!(header(u64::MAX), None);
    }
}
