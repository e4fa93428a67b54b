//! The memory of a process as the kernel reports it. Pure.

use std::ops::Range;

use super::pages::split;
use crate::supervisor::snapshot::regions::{Backing, Region};
use sandfork_jail::restore::{LARGEST_BLOB, Protection, WINDOW};

/// The smallest run of pages that is mapped from the image: one mapping costs about as much as copying this many bytes.
const LEAST_SHARED: u64 = 64 << 10;

/// The size of the hole for a blob and its window.
pub const HOLE: u64 = 256 << 20;

const _: () = assert!(LARGEST_BLOB + WINDOW <= HOLE);

/// The addresses at which a hole may start and end: above those of non-PIE programs, and below those that the kernel
/// uses.
const HOLES: Range<u64> = 1 << 32..0x7ff0_0000_0000;

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// The mappings, in order of address.
    pub regions: &'a [Region],
    /// The private pages, in order.
    pub pages: &'a [Range<u64>],
    /// The guard pages, in order.
    pub guards: &'a [Range<u64>],
    /// Ranges that may be mapped from the image besides the heap, in order. `None` if nothing may be mapped because the
    /// image is not in memory.
    pub shareable: Option<&'a [Range<u64>]>,
    /// The thread pointer of the main thread.
    pub thread: u64,
    /// Whether the image comes from a file that another supervisor may have saved.
    pub is_saved: bool,
}

/// Returns the intersections of `ranges` with `range`.
pub fn within<'a>(
    ranges: &'a [Range<u64>],
    range: &Range<u64>,
) -> impl Iterator<Item = Range<u64>> + use<'a> {
    let (start, end) = (range.start, range.end);
    let first = ranges.partition_point(|one| one.end <= start);
    let ranges = ranges[first..].iter();
    ranges
        .take_while(move |one| one.start < end)
        .map(move |one| one.start.max(start)..one.end.min(end))
}

impl Memory<'_> {
    /// Returns the private pages within a range.
    pub fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        within(self.pages, range)
    }

    /// Returns the guard pages within a range that `other` does not have.
    pub fn guards_missing_in(
        &self,
        other: Memory<'_>,
        range: &Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let parts = within(self.guards, range).flat_map(move |part| split(&part, other.guards));
        parts.filter_map(|(part, have_both)| (!have_both).then_some(part))
    }

    /// Splits a run of private pages of the mapping `of`. Each part comes with whether it is mapped from the image.
    pub fn parts_of(&self, of: &Region, pages: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let may_be_shared = !of.is_shared
            && of.protection == Protection::READ_WRITE
            && !of.advice.is_wiped
            && matches!(of.backing, Backing::Anonymous | Backing::Heap);
        let mut parts = match (self.shareable.filter(|_| may_be_shared), &of.backing) {
            (None, _) => vec![(pages, false)],
            (_, Backing::Heap) => vec![(pages, true)],
            (Some(shareable), _) => split(&pages, shareable),
        };
        for (range, is_shared) in &mut parts {
            *is_shared &= range.end - range.start >= LEAST_SHARED;
        }
        parts
    }

    /// Returns the last mapping with this backing.
    pub fn last(&self, backing: &Backing) -> Option<&Region> {
        self.regions
            .iter()
            .rev()
            .find(|region| region.backing == *backing)
    }
}

/// Returns an address at which neither process has mappings for [`HOLE`] bytes plus the length of all target mappings.
pub fn hole(source: &[Region], target: &[Region]) -> Option<u64> {
    let mapped: u64 = target.iter().map(|region| region.end - region.start).sum();
    let length = HOLE.checked_add(mapped)?;
    let mut regions: Vec<&Region> = source.iter().chain(target).collect();
    regions.sort_unstable_by_key(|region| region.start);
    let mut start = HOLES.start;
    for region in regions {
        if region.start >= start.checked_add(length)? {
            break;
        }
        start = start.max(region.end.checked_next_multiple_of(HOLE)?);
    }
    (start.checked_add(length)? <= HOLES.end).then_some(start)
}
