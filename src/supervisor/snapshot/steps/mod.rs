//! Computes the steps that turn a worker's memory into that of a captured worker. Pure.
//!
//! One zygote forks both workers, so that most of their mappings are equal. Missing mappings are made, additional ones
//! are unmapped, and pages are read from the image. A page that both have may still be the zygote's in either of them:
//! it is compared with the image, and copied if it differs. A page that only the target has is dropped.
//!
//! Much memory is mapped from the image, so that all copies share it until they write to it. A program can notice that
//! a file backs this memory: `MADV_DONTNEED` does not zero it, and it cannot be grown. Only memory of which the C
//! library and CPython expect neither is therefore shared.

mod memory;
mod moved;
mod pages;

use std::collections::BTreeSet;
use std::ops::Range;

pub use self::memory::{HOLE, Memory, hole};
pub use self::pages::{in_order, split, split_by};

use self::memory::within;
use self::moved::{has_other_layout, moved};
use self::pages::{Who, compare, parts};
use super::descriptors::is_path;
use super::layers::Places;
use super::refusal::SnapshotRefusal;
use super::regions::{Backing, Region, at};
use sandfork_jail::restore::{BlobData, Place, Protection, Sharing, Step, WINDOW};
use sandfork_jail::sys::checkpoint::BUFFER;

/// The maximum length of one read(2) step.
const MAX_READ: u64 = 1 << 30;

/// The steps of a restore, and the files that they involve.
#[derive(Debug)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// The paths of the files that the steps open.
    pub opened: Vec<String>,
    /// The paths of the files whose mappings the steps move from elsewhere in the target.
    pub moved: BTreeSet<String>,
}

/// Computes the steps from `target` to `source`, whose page contents are at `places`.
pub fn steps<'a>(
    source: Memory,
    places: Places<'a>,
    program_break: u64,
    target: Memory,
    blob: &'a mut BlobData,
) -> Result<Plan, SnapshotRefusal> {
    let has_other_layout = has_other_layout(source, target);
    let room = blob.end_of(HOLE);
    let mut made = Steps {
        first: Vec::new(),
        maps: Vec::new(),
        shared: Vec::new(),
        loads: Vec::new(),
        last: Vec::new(),
        after: Vec::new(),
        file: None,
        opened: Vec::new(),
        moved: BTreeSet::new(),
        is_in_memory: source.shareable.is_some(),
        window: None,
        places,
        blob,
    };
    let (regions, pages, guards);
    let target = if has_other_layout {
        let moved = moved(source, target, room)?;
        made.first = moved.steps;
        let paths = moved
            .regions
            .iter()
            .filter_map(|region| match &region.backing {
                Backing::File { path, .. } => Some(path.clone()),
                _ => None,
            });
        made.moved = paths.collect();
        made.after.push(Step::thread_pointer(source.thread));
        (regions, pages, guards) = (moved.regions, moved.pages, moved.guards);
        Memory {
            regions: &regions,
            pages: &pages,
            guards: &guards,
            ..target
        }
    } else {
        regions = made.grow(source, program_break, target.regions);
        Memory {
            regions: &regions,
            ..target
        }
    };
    for range in pieces(source.regions, target.regions) {
        made.piece(source, target, &range)?;
    }
    Ok(made.finish())
}

/// Splits the address space at the bounds of all mappings.
fn pieces(source: &[Region], target: &[Region]) -> impl Iterator<Item = Range<u64>> {
    let both = source.iter().chain(target);
    let mut bounds: Vec<u64> = both.flat_map(|region| [region.start, region.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let ends: Vec<u64> = bounds.iter().skip(1).copied().collect();
    bounds.into_iter().zip(ends).map(|(start, end)| start..end)
}

struct Steps<'a> {
    first: Vec<Step>,
    maps: Vec<Step>,
    shared: Vec<Step>,
    loads: Vec<Step>,
    last: Vec<Step>,
    after: Vec<Step>,
    /// The file that is open after the mapping steps so far, if one is.
    file: Option<String>,
    /// All files that were opened.
    opened: Vec<String>,
    moved: BTreeSet<String>,
    /// Whether the image can be mapped. An image on disk is read instead: read(2) reports a bad sector, while a mapping
    /// raises SIGBUS.
    is_in_memory: bool,
    /// The part of the image at which the window starts, once it is mapped.
    window: Option<Place>,
    places: Places<'a>,
    blob: &'a mut BlobData,
}

impl Steps<'_> {
    /// Resizes heap and stack to those of the source, because the kernel keeps their bounds separately from mappings.
    /// Returns the target's mappings after that.
    fn grow(&mut self, source: Memory, program_break: u64, own: &[Region]) -> Vec<Region> {
        let mut regions = own.to_vec();
        let heaps = source.last(&Backing::Heap);
        if let (Some(heap), Some(own)) = (
            heaps,
            regions
                .iter_mut()
                .rev()
                .find(|region| region.backing == Backing::Heap),
        ) {
            // The kernel shows the heap's end rounded up to a page. The guest's own value is used if it lies within
            // that page.
            let shown = heap.end - 4095..=heap.end;
            let end = if shown.contains(&program_break) {
                program_break
            } else {
                heap.end
            };
            self.first.push(Step::program_break(end));
            own.end = heap.end;
        }
        regions.retain(|region| region.start < region.end);
        let stack = source.last(&Backing::Stack);
        let own = regions
            .iter_mut()
            .find(|region| region.backing == Backing::Stack);
        if let (Some(stack), Some(own)) = (stack, own)
            && stack.start < own.start
        {
            self.first.push(Step::touch(stack.start));
            own.start = stack.start;
        }
        regions
    }

    fn piece(
        &mut self,
        source: Memory,
        target: Memory,
        range: &Range<u64>,
    ) -> Result<(), SnapshotRefusal> {
        let wanted = at(source.regions, range.start);
        let own = at(target.regions, range.start);
        let is_kernel = |region: Option<&Region>| region.is_some_and(Region::is_kernel);
        if is_kernel(wanted) || is_kernel(own) {
            return if is_kernel(wanted) && is_kernel(own) {
                Ok(())
            } else {
                let what = "the kernel's own pages are mapped elsewhere".to_owned();
                Err(SnapshotRefusal::Mapping(what))
            };
        }
        let length = range.end - range.start;
        match (wanted, own) {
            (None, None) => {}
            // Memory below the stack pointer holds nothing.
            (None, Some(own)) if own.backing == Backing::Stack => {}
            (None, Some(_)) => self.first.push(Step::unmap(range.start, length)),
            (Some(wanted), Some(own)) if wanted.is_same(own) => {
                self.keep(wanted, own, source, target, range);
            }
            (Some(wanted), _) => self.replace(wanted, source, range)?,
        }
        Ok(())
    }

    /// Adds the steps that give the pages of a mapping that both processes have the source's contents.
    fn keep(
        &mut self,
        wanted: &Region,
        own: &Region,
        source: Memory,
        target: Memory,
        range: &Range<u64>,
    ) {
        let length = range.end - range.start;
        let (shared, copied) = self.share(wanted, source, range);
        let mut protection = own.protection;
        if !copied.is_empty() && protection.written() != protection {
            protection = wanted.protection.written();
            self.maps
                .push(Step::protect(range.start, length, protection));
        }
        // These guards are removed first, because reading into a guard page fails.
        for guards in target.guards_missing_in(source, range) {
            let length = guards.end - guards.start;
            self.maps.push(Step::unguard(guards.start, length));
        }
        self.guard(source, range);
        if !wanted.advice.is_wiped {
            // Mapping the image has already replaced these pages of the target.
            let own = target
                .within(range)
                .flat_map(|pages| split(&pages, &shared));
            let own = own.filter_map(|(pages, is_replaced)| (!is_replaced).then_some(pages));
            for (pages, who) in compare(copied.into_iter(), own) {
                let length = pages.end - pages.start;
                match who {
                    Who::Source => self.read(&pages),
                    Who::Both => self.compare(&pages),
                    Who::Target => {
                        let dropped = Step::advise(pages.start, length, libc::MADV_DONTNEED);
                        self.loads.push(dropped);
                    }
                }
            }
        }
        if protection != wanted.protection {
            self.last
                .push(Step::protect(range.start, length, wanted.protection));
        }
    }

    /// Adds the steps that map a range that the target lacks.
    fn replace(
        &mut self,
        wanted: &Region,
        source: Memory,
        range: &Range<u64>,
    ) -> Result<(), SnapshotRefusal> {
        let (start, length) = (range.start, range.end - range.start);
        let (_, pages) = self.share(wanted, source, range);
        let protection = if pages.is_empty() {
            wanted.protection
        } else {
            wanted.protection.written()
        };
        if let Backing::File { path, offset, .. } = &wanted.backing {
            self.open(path)?;
            let sharing = if wanted.is_shared {
                Sharing::Shared
            } else {
                Sharing::Private
            };
            let offset = offset + (start - wanted.start);
            self.maps
                .push(Step::map_file(start, length, protection, sharing, offset));
        } else {
            let flags = u64::from(wanted.advice.flags.unsigned_abs());
            self.maps.push(Step::map(start, length, protection, flags));
            let advice = wanted.advice.huge;
            self.maps
                .extend(advice.map(|advice| Step::advise(start, length, advice)));
        }
        for pages in &pages {
            self.read(pages);
        }
        self.guard(source, range);
        if protection != wanted.protection {
            self.last
                .push(Step::protect(start, length, wanted.protection));
        }
        Ok(())
    }

    /// Maps shareable pages from the image. Returns the mapped page ranges and the remaining ones.
    fn share(
        &mut self,
        wanted: &Region,
        source: Memory,
        range: &Range<u64>,
    ) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let parts = source.within(range);
        let parts = parts.flat_map(|pages| source.parts_of(wanted, pages));
        let (shared, others): (Vec<_>, Vec<_>) = parts.partition(|(_, is_shared)| *is_shared);
        let ranges =
            |parts: Vec<(Range<u64>, bool)>| parts.into_iter().map(|(range, _)| range).collect();
        let shared: Vec<Range<u64>> = ranges(shared);
        for pages in &shared {
            let (length, place) = (pages.end - pages.start, self.places.at(pages.start));
            let protection = Protection::READ_WRITE;
            let mapped = Step::map_image(pages.start, length, protection, place);
            self.shared.push(mapped);
        }
        (shared, ranges(others))
    }

    /// Installs the source's guard pages.
    fn guard(&mut self, source: Memory, range: &Range<u64>) {
        for guards in within(source.guards, range) {
            let length = guards.end - guards.start;
            self.last.push(Step::guard(guards.start, length));
        }
    }

    fn open(&mut self, path: &str) -> Result<(), SnapshotRefusal> {
        if self.file.as_deref() == Some(path) {
            return Ok(());
        }
        if !is_path(path) {
            return Err(SnapshotRefusal::mapped(path));
        }
        self.close();
        let name = self.blob.name(path);
        self.maps.push(Step::open(name));
        self.file = Some(path.to_owned());
        self.opened.push(path.to_owned());
        Ok(())
    }

    fn close(&mut self) {
        if self.file.take().is_some() {
            self.maps.push(Step::close());
        }
    }

    fn read(&mut self, pages: &Range<u64>) {
        for part in parts(pages, MAX_READ) {
            let (length, place) = (part.end - part.start, self.places.at(part.start));
            self.loads.push(Step::read(part.start, length, place));
        }
    }

    fn compare(&mut self, pages: &Range<u64>) {
        for part in parts(pages, BUFFER as u64) {
            let (length, place) = (part.end - part.start, self.places.at(part.start));
            let from = self.show(place, length);
            self.loads
                .push(Step::copy_differing(part.start, length, from));
        }
    }

    /// Makes part of the image readable in memory, and returns its address.
    fn show(&mut self, place: Place, length: u64) -> u64 {
        if !self.is_in_memory {
            let buffer = self.blob.buffer();
            self.loads.push(Step::read(buffer, length, place));
            return buffer;
        }
        let start = self.blob.window();
        let shown = self.window.filter(|it| it.descriptor == place.descriptor);
        let behind = shown.and_then(|first| place.offset.checked_sub(first.offset));
        if let Some(behind) = behind.filter(|behind| behind + length <= WINDOW) {
            return start + behind;
        }
        self.window = Some(place);
        let opened = Step::map_image(start, WINDOW, Protection::READ, place);
        self.loads.push(opened);
        start
    }

    fn finish(mut self) -> Plan {
        self.close();
        let mut steps = self.first;
        steps.append(&mut self.maps);
        steps.append(&mut self.shared);
        steps.append(&mut self.loads);
        if self.window.is_some() {
            steps.push(Step::unmap(self.blob.window(), WINDOW));
        }
        steps.append(&mut self.last);
        steps.append(&mut self.after);
        let images = self.places.descriptors.iter();
        steps.extend(images.map(|image| Step::close_image(*image)));
        Plan {
            steps,
            opened: self.opened,
            moved: self.moved,
        }
    }
}

#[cfg(test)]
mod tests;
