//! Computes the first steps for a worker that another interpreter forked. Pure.
//!
//! Its address layout differs from that of the captured worker. Its file and kernel mappings are moved to the addresses
//! of their counterparts in the captured worker, because the jail may hide the mapped files from it, and no process can
//! create kernel mappings. All other mappings are unmapped. The steps between two workers of one interpreter do the
//! rest.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Memory;
use super::memory::within;
use super::pages::PAGE;
use crate::supervisor::snapshot::refusal::SnapshotRefusal;
use crate::supervisor::snapshot::regions::{Backing, Region, at};
use sandfork_jail::restore::{Protection, Step};

/// The start of kernel addresses. Mappings from here on are the same in each process and cannot be moved or unmapped.
const OF_KERNEL: u64 = 1 << 47;

/// The prefix of the names of Sandfork's own memory files. Each interpreter has its own inodes of them.
const OWN_FILES: &str = "/memfd:sandfork-";

/// A key by which mappings of two processes match, independent of their addresses.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
enum Key<'a> {
    Kernel(&'a str),
    /// The device, inode and offset, and whether the mapping is shared.
    File(&'a str, u64, u64, bool),
    Own(&'a str, u64),
}

impl<'a> Key<'a> {
    fn of(region: &'a Region) -> Option<(Self, u64)> {
        let what = match &region.backing {
            Backing::Kernel(name) if region.start < OF_KERNEL => Self::Kernel(name),
            Backing::File { path, offset, .. } if path.starts_with(OWN_FILES) => {
                Self::Own(path, *offset)
            }
            Backing::File {
                device,
                inode,
                offset,
                ..
            } => Self::File(device, *inode, *offset, region.is_shared),
            _ => return None,
        };
        Some((what, region.end - region.start))
    }
}

/// The steps that move a target's mappings, and its memory after them.
#[derive(Debug)]
pub struct Moved {
    pub steps: Vec<Step>,
    pub regions: Vec<Region>,
    pub pages: Vec<Range<u64>>,
    pub guards: Vec<Range<u64>>,
}

/// Whether the two processes come from different interpreters, or may do so. A session that was resumed in another
/// interpreter keeps the addresses of the first, and so do its forks.
pub fn has_other_layout(source: Memory, target: Memory) -> bool {
    let of_kernel = |memory: Memory| -> Vec<(u64, u64)> {
        let regions = memory.regions.iter();
        let of_kernel = regions.filter(|region| region.is_kernel());
        of_kernel.map(|region| (region.start, region.end)).collect()
    };
    // A saved image may come from an interpreter with equal addresses, but other memory files and another heap.
    source.is_saved || source.thread != target.thread || of_kernel(source) != of_kernel(target)
}

/// Moves the target's mappings that match one of the source. `room` is the start of a range that is free in both
/// processes and as long as all mappings of the target.
pub fn moved(source: Memory, target: Memory, room: u64) -> Result<Moved, SnapshotRefusal> {
    let mut own: BTreeMap<_, Vec<&Region>> = BTreeMap::new();
    for region in target.regions.iter().rev() {
        if let Some(what) = Key::of(region) {
            own.entry(what).or_default().push(region);
        }
    }
    let mut pairs: Vec<(&Region, &Region)> = Vec::new();
    for wanted in source.regions {
        let found = Key::of(wanted).and_then(|what| own.get_mut(&what)?.pop());
        match found {
            Some(found) => pairs.push((wanted, found)),
            None if wanted.is_kernel() && wanted.start < OF_KERNEL => {
                let what = "the kernel's own pages differ".to_owned();
                return Err(SnapshotRefusal::Mapping(what));
            }
            None => {}
        }
    }
    let needed: BTreeSet<u64> = pairs.iter().map(|(_, own)| own.start).collect();
    let stays = |region: &&Region| region.start >= OF_KERNEL || needed.contains(&region.start);
    let mut steps = heap_is_closed(source, target)?;
    let unneeded = target.regions.iter().filter(|region| !stays(region));
    // The heap is unmapped too: it can no longer grow.
    steps.extend(unneeded.map(|region| Step::unmap(region.start, region.end - region.start)));
    steps.append(&mut moves(&pairs, room));
    let mut regions: Vec<Region> = pairs
        .iter()
        .map(|(wanted, own)| Region {
            protection: own.protection,
            ..(*wanted).clone()
        })
        .collect();
    let of_kernel = target.regions.iter();
    regions.extend(
        of_kernel
            .filter(|region| region.start >= OF_KERNEL)
            .cloned(),
    );
    regions.sort_unstable_by_key(|region| region.start);
    let there = |ranges: &[Range<u64>]| {
        let mut found: Vec<Range<u64>> = Vec::new();
        for (wanted, own) in &pairs {
            let to = |address: u64| address - own.start + wanted.start;
            let parts = within(ranges, &(own.start..own.end));
            found.extend(parts.map(|range| to(range.start)..to(range.end)));
        }
        found.sort_unstable_by_key(|range| range.start);
        found
    };
    Ok(Moved {
        steps,
        regions,
        pages: there(target.pages),
        guards: there(target.guards),
    })
}

/// Returns steps that prevent the heap from ever growing. The kernel keeps the program break, which mappings do not
/// change, and would extend the heap there, while the C library attributes memory that does not follow its heap to
/// sbrk(2) calls of other code. When brk(2) fails, the C library uses mmap(2) instead.
fn heap_is_closed(source: Memory, target: Memory) -> Result<Vec<Step>, SnapshotRefusal> {
    let Some(heap) = target.last(&Backing::Heap) else {
        let what = "the interpreter has no heap".to_owned();
        return Err(SnapshotRefusal::Mapping(what));
    };
    // Otherwise brk(2) would hand out the rest of the last page without mapping it.
    let mut steps = vec![Step::program_break(heap.end)];
    if at(source.regions, heap.end).is_none() {
        steps.push(Step::map(heap.end, PAGE, Protection::default(), 0));
    }
    Ok(steps)
}

/// Returns the steps that move each pair's second mapping to the address of its first. If a move would overwrite a
/// mapping that has not moved yet, all mappings move to `room` first.
fn moves(pairs: &[(&Region, &Region)], room: u64) -> Vec<Step> {
    let pairs = pairs
        .iter()
        .filter(|(wanted, own)| wanted.start != own.start);
    let of = |region: &Region| (region.start, region.end - region.start);
    let mut starts: Vec<&Region> = pairs.clone().map(|(_, own)| *own).collect();
    starts.sort_unstable_by_key(|region| region.start);
    let is_taken = |wanted: &Region| {
        let next = starts.partition_point(|own| own.end <= wanted.start);
        starts.get(next).is_some_and(|own| own.start < wanted.end)
    };
    if !pairs.clone().any(|(wanted, _)| is_taken(wanted)) {
        let direct = pairs.map(|(wanted, own)| {
            let (start, length) = of(own);
            Step::relocate(start, length, wanted.start)
        });
        return direct.collect();
    }
    let (mut there, mut back, mut place) = (Vec::new(), Vec::new(), room);
    for (wanted, own) in pairs {
        let (start, length) = of(own);
        there.push(Step::relocate(start, length, place));
        back.push(Step::relocate(place, length, wanted.start));
        place += length;
    }
    there.append(&mut back);
    there
}
