//! The first steps of a worker whose interpreter is not the one from which the other worker was forked. Pure.
//!
//! Such a worker has nothing at the other's addresses. What it maps of files and of the kernel moves to where the
//! other one has the same: files may be hidden from it since it was jailed, and the kernel's pages cannot be made.
//! Everything else of it is unmapped. The steps between two workers of one interpreter do the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Memory;
use super::memory::within;
use super::pages::PAGE;
use crate::supervisor::snapshot::refusal::SnapshotRefusal;
use crate::supervisor::snapshot::regions::{Backing, Region, at};
use sandfork_jail::restore::{Protection, Step};

/// What is mapped from here on cannot be moved or unmapped: the kernel has it there in each process.
const OF_KERNEL: u64 = 1 << 47;

/// How the names of Sandfork's own files in memory begin. Each interpreter has its own inodes of them.
const OWN_FILES: &str = "/memfd:sandfork-";

/// What makes two mappings of two processes the same, wherever they are.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
enum What<'a> {
    Kernel(&'a str),
    /// The device, the inode and the offset, and whether it is shared.
    File(&'a str, u64, u64, bool),
    Own(&'a str, u64),
}

impl<'a> What<'a> {
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

/// A target whose mappings were moved.
#[derive(Debug)]
pub struct Moved {
    pub steps: Vec<Step>,
    pub regions: Vec<Region>,
    pub pages: Vec<Range<u64>>,
    pub guards: Vec<Range<u64>>,
}

/// Whether the two processes are, or may be, of different interpreters. A session that was resumed under one goes on with the
/// addresses of another, and so do its forks.
pub fn is_elsewhere(source: Memory, target: Memory) -> bool {
    let of_kernel = |memory: Memory| -> Vec<(u64, u64)> {
        let regions = memory.regions.iter();
        let of_kernel = regions.filter(|region| region.is_kernel());
        of_kernel.map(|region| (region.start, region.end)).collect()
    };
    // Another interpreter may have had the same addresses, but neither the same files in memory nor the same heap.
    source.is_saved || source.thread != target.thread || of_kernel(source) != of_kernel(target)
}

/// Moves what the target has of the source's mappings. `room` is a range as long as all mappings of the target, in which
/// neither process has anything.
pub fn moved(source: Memory, target: Memory, room: u64) -> Result<Moved, SnapshotRefusal> {
    let mut own: BTreeMap<_, Vec<&Region>> = BTreeMap::new();
    for region in target.regions.iter().rev() {
        if let Some(what) = What::of(region) {
            own.entry(what).or_default().push(region);
        }
    }
    let mut pairs: Vec<(&Region, &Region)> = Vec::new();
    for wanted in source.regions {
        let found = What::of(wanted).and_then(|what| own.get_mut(&what)?.pop());
        match found {
            Some(found) => pairs.push((wanted, found)),
            None if wanted.is_kernel() && wanted.start < OF_KERNEL => {
                let what = "the kernel's own pages are others".to_owned();
                return Err(SnapshotRefusal::Mapping(what));
            }
            None => {}
        }
    }
    let needed: BTreeSet<u64> = pairs.iter().map(|(_, own)| own.start).collect();
    let stays = |region: &&Region| region.start >= OF_KERNEL || needed.contains(&region.start);
    let mut steps = heap_is_closed(source, target)?;
    let unneeded = target.regions.iter().filter(|region| !stays(region));
    // The heap goes with them: its end is closed from now on.
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

/// Closes the heap, so that it never grows again: it would grow where the kernel keeps its end, which mappings do not
/// change, and the C library takes memory that is not behind its heap for another program's. Without brk(2) it maps its
/// memory.
fn heap_is_closed(source: Memory, target: Memory) -> Result<Vec<Step>, SnapshotRefusal> {
    let Some(heap) = target.last(&Backing::Heap) else {
        let what = "the interpreter has no heap".to_owned();
        return Err(SnapshotRefusal::Mapping(what));
    };
    // The rest of the last page would be given out without being mapped.
    let mut steps = vec![Step::program_break(heap.end)];
    if at(source.regions, heap.end).is_none() {
        steps.push(Step::map(heap.end, PAGE, Protection::default(), 0));
    }
    Ok(steps)
}

/// The steps that move each second mapping to where the first is. Where one would replace another that has not been moved
/// yet, all go through `room`.
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
