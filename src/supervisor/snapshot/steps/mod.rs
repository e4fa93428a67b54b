//! The steps by which a worker's memory becomes that of another. Pure.
//!
//! Both workers come from one zygote, so that most mappings are the same in both. What the target lacks is mapped,
//! what it has in addition is unmapped, and pages are read from the image. A page that both have may be the zygote's
//! still, in both: it is compared, and copied if it differs. A page that only the target has is dropped.
//!
//! Much memory is not copied: it is mapped from the image, so that all copies share it until they write to it. Such a
//! mapping is of a file, which a program can notice: it cannot be dropped to zeros (`MADV_DONTNEED`), or grown. So only
//! memory is shared of which the C library and CPython do not expect that.

mod pages;

use std::ops::Range;

pub use self::pages::in_order;

use self::pages::{Places, Who, compare, parts, split};
use super::refusal::SnapshotRefusal;
use super::regions::{Backing, Region, at};
use sandfork_jail::restore::{BlobData, Protection, Sharing, Step};
use sandfork_jail::sys::checkpoint::BUFFER;

/// The most bytes of one read(2).
const MOST_READ: u64 = 1 << 30;

/// The least memory that is mapped from the image: a mapping costs about as much as copying this.
const LEAST_SHARED: u64 = 64 << 10;

/// The size of a hole for a blob.
pub const HOLE: u64 = 256 << 20;

/// Where a hole may be: above what fixed programs use, and below what the kernel keeps for itself.
const HOLES: Range<u64> = 1 << 32..0x7ff0_0000_0000;

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// Its mappings, in order.
    pub regions: &'a [Region],
    /// Its own pages, in order.
    pub pages: &'a [Range<u64>],
    /// Ranges that may be mapped from the image, in order, besides the heap. Without it, nothing is: the image is not
    /// in memory.
    pub shareable: Option<&'a [Range<u64>]>,
}

impl Memory<'_> {
    /// Its own pages within a range.
    fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (start, end) = (range.start, range.end);
        let first = self.pages.partition_point(|pages| pages.end <= start);
        let pages = self.pages[first..].iter();
        pages
            .take_while(move |pages| pages.start < end)
            .map(move |pages| pages.start.max(start)..pages.end.min(end))
    }

    /// The parts of a mapping's pages, and whether each is mapped from the image.
    fn parts_of(&self, of: &Region, pages: Range<u64>) -> Vec<(Range<u64>, bool)> {
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

    fn last(&self, backing: &Backing) -> Option<&Region> {
        self.regions
            .iter()
            .rev()
            .find(|region| region.backing == *backing)
    }
}

/// An address at which neither process has anything for as long as a hole is.
pub fn hole(source: &[Region], target: &[Region]) -> Option<u64> {
    let is_free = |start: &u64| {
        let end = start + HOLE;
        let overlaps = |region: &Region| region.start < end && *start < region.end;
        !source.iter().chain(target).any(overlaps)
    };
    let step = usize::try_from(HOLE).unwrap_or(usize::MAX);
    HOLES.step_by(step).take(1 << 16).find(is_free)
}

/// The steps, and the files that they open.
#[derive(Debug)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Paths, each with the inode that it must lead to.
    pub opened: Vec<(String, u64)>,
}

/// The steps from `target` to `source`.
pub fn steps<'a>(
    source: Memory<'a>,
    program_break: u64,
    target: Memory,
    blob: &'a mut BlobData,
) -> Result<Plan, SnapshotRefusal> {
    let mut regions = target.regions.to_vec();
    let mut made = Steps {
        first: Vec::new(),
        maps: Vec::new(),
        shared: Vec::new(),
        loads: Vec::new(),
        last: Vec::new(),
        file: None,
        opened: Vec::new(),
        places: Places::of(source.pages),
        blob,
    };
    made.grow(source, program_break, &mut regions);
    let target = Memory {
        regions: &regions,
        ..target
    };
    for range in pieces(source.regions, target.regions) {
        made.piece(source, target, &range)?;
    }
    Ok(made.finish())
}

/// The ranges between all bounds of mappings.
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
    /// The file that is open while mappings are made.
    file: Option<String>,
    /// All such files, with their inodes.
    opened: Vec<(String, u64)>,
    places: Places<'a>,
    blob: &'a mut BlobData,
}

impl Steps<'_> {
    /// Gives heap and stack the other's ends: the kernel keeps both, and mappings do not change them.
    fn grow(&mut self, source: Memory, program_break: u64, regions: &mut Vec<Region>) {
        let heaps = source.last(&Backing::Heap);
        if let (Some(heap), Some(own)) = (
            heaps,
            regions
                .iter_mut()
                .rev()
                .find(|region| region.backing == Backing::Heap),
        ) {
            // The guest's word counts within the last page, which is all that the kernel does not show.
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
    }

    fn piece(
        &mut self,
        source: Memory,
        target: Memory,
        range: &Range<u64>,
    ) -> Result<(), SnapshotRefusal> {
        let wanted = at(source.regions, range.start);
        let own = at(target.regions, range.start);
        let is_kernel =
            |region: Option<&Region>| region.is_some_and(|it| it.backing == Backing::Kernel);
        if is_kernel(wanted) || is_kernel(own) {
            return if is_kernel(wanted) && is_kernel(own) {
                Ok(())
            } else {
                let what = "the kernel's own pages are mapped elsewhere".to_owned();
                Err(SnapshotRefusal::Mapping { what })
            };
        }
        let length = range.end - range.start;
        match (wanted, own) {
            (None, None) => {}
            // What lies below the stack pointer means nothing.
            (None, Some(own)) if own.backing == Backing::Stack => {}
            (None, Some(_)) => self.first.push(Step::unmap(range.start, length)),
            (Some(wanted), Some(own)) if wanted.is_same(own) => {
                self.keep(wanted, own, source, target, range);
            }
            (Some(wanted), _) => self.replace(wanted, source, range)?,
        }
        Ok(())
    }

    /// Makes the pages of a mapping that both have the other's.
    fn keep(
        &mut self,
        wanted: &Region,
        own: &Region,
        source: Memory,
        target: Memory,
        range: &Range<u64>,
    ) {
        let length = range.end - range.start;
        let (shared, its) = self.share(wanted, source, range);
        let mut protection = own.protection;
        if !its.is_empty() && protection.written() != protection {
            protection = wanted.protection.written();
            self.maps
                .push(Step::protect(range.start, length, protection));
        }
        if !wanted.advice.is_wiped {
            // What the target had under a mapping of the image is gone.
            let own = target
                .within(range)
                .flat_map(|pages| split(&pages, &shared));
            let own = own.filter_map(|(pages, is_replaced)| (!is_replaced).then_some(pages));
            for (pages, who) in compare(its.into_iter(), own) {
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

    /// Maps what the target lacks.
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
        if let Backing::File {
            path,
            offset,
            inode,
            ..
        } = &wanted.backing
        {
            self.open(path, *inode)?;
            let sharing = if wanted.is_shared {
                Sharing::Shared
            } else {
                Sharing::Private
            };
            let offset = offset + (start - wanted.start);
            self.maps
                .push(Step::map_file(start, length, protection, sharing, offset));
        } else {
            let unreserved = wanted.advice.unreserved;
            let flags = if unreserved { libc::MAP_NORESERVE } else { 0 };
            let flags = u64::from(flags.unsigned_abs());
            self.maps.push(Step::map(start, length, protection, flags));
            let advice = wanted.advice.huge;
            self.maps
                .extend(advice.map(|advice| Step::advise(start, length, advice)));
        }
        for pages in &pages {
            self.read(pages);
        }
        if protection != wanted.protection {
            self.last
                .push(Step::protect(start, length, wanted.protection));
        }
        Ok(())
    }

    /// Maps from the image what may be shared. Returns these pages, and the others.
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
            self.shared
                .push(Step::map_image(pages.start, length, place));
        }
        (shared, ranges(others))
    }

    fn open(&mut self, path: &str, inode: u64) -> Result<(), SnapshotRefusal> {
        if self.file.as_deref() == Some(path) {
            return Ok(());
        }
        if path.ends_with(" (deleted)") || path.contains("\\012") {
            let what = format!("`{path}` is mapped, and cannot be opened again");
            return Err(SnapshotRefusal::Mapping { what });
        }
        self.close();
        let name = self.blob.name(path);
        self.maps.push(Step::open(name));
        self.file = Some(path.to_owned());
        self.opened.push((path.to_owned(), inode));
        Ok(())
    }

    fn close(&mut self) {
        if self.file.take().is_some() {
            self.maps.push(Step::close());
        }
    }

    fn read(&mut self, pages: &Range<u64>) {
        for part in parts(pages, MOST_READ) {
            let (length, place) = (part.end - part.start, self.places.at(part.start));
            self.loads.push(Step::read(part.start, length, place));
        }
    }

    fn compare(&mut self, pages: &Range<u64>) {
        for part in parts(pages, BUFFER as u64) {
            let (length, place) = (part.end - part.start, self.places.at(part.start));
            self.loads
                .push(Step::read(self.blob.buffer(), length, place));
            self.loads.push(Step::copy_differing(part.start, length));
        }
    }

    fn finish(mut self) -> Plan {
        self.close();
        let mut steps = self.first;
        steps.append(&mut self.maps);
        steps.append(&mut self.shared);
        steps.append(&mut self.loads);
        steps.append(&mut self.last);
        steps.push(Step::close_image());
        Plan {
            steps,
            opened: self.opened,
        }
    }
}

#[cfg(test)]
mod tests;
