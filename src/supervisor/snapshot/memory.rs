//! Copies the memory of a worker that waits at its copy point.

use std::fs::File;
use std::io::IoSliceMut;
use std::iter;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::Source;
use super::layers::LayersBuilder;
use super::refusal::{Doing, SnapshotRefusal};
use super::regions::Region;
use super::steps::split;
use crate::supervisor::descriptors::{CHUNK, with_buffer};
use sandfork_jail::sys::pagemap::{Pages, scan};

/// The maximum number of page ranges.
const MAX_PIECES: usize = 1 << 18;

const FRAGMENTED: SnapshotRefusal = SnapshotRefusal::Fragmented(MAX_PIECES);

/// The bytes copied per call: few enough pages for one process_vm_readv(2). The buffer stays below glibc's mmap
/// threshold: freeing a block of a megabyte, which glibc maps by itself, would raise the threshold, and glibc would
/// keep twice as much of every arena from then on (`M_MMAP_THRESHOLD`, mallopt(3)).
const AT_ONCE: u64 = CHUNK as u64;

/// Checks that the kernel supports `PAGEMAP_SCAN`, by scanning this process.
pub(super) fn is_listed() -> Result<(), SnapshotRefusal> {
    let pagemap = File::open("/proc/self/pagemap").doing("list its pages")?;
    match scan(pagemap.as_fd(), 0..1, &mut Pages::default(), MAX_PIECES) {
        Err(Errno::ENOTTY) => Err(SnapshotRefusal::Kernel),
        other => other.doing("list its pages"),
    }
}

impl Source<'_> {
    /// Returns the worker's private pages and its guard pages.
    pub fn pages(&self, regions: &[Region]) -> Result<Pages, SnapshotRefusal> {
        let proc = &self.worker.proc;
        let pagemap = proc.open("pagemap").doing("open its page map")?;
        let mut pages = Pages::default();
        let copied = |region: &&Region| !region.is_kernel() && !region.is_shared;
        for region in regions.iter().filter(copied) {
            if region.advice.is_wiped {
                continue;
            }
            let within = region.start..region.end;
            let mut image_pages = Pages::default();
            let found = if region.is_image {
                &mut image_pages
            } else {
                &mut pages
            };
            match scan(pagemap.as_fd(), within.clone(), found, MAX_PIECES) {
                Err(Errno::ENOTTY) => return Err(SnapshotRefusal::Kernel),
                Err(Errno::E2BIG) => return Err(FRAGMENTED),
                other => other.doing("list its pages")?,
            }
            if region.is_image {
                for (range, is_guard) in split(&within, &image_pages.guards) {
                    let ranges = if is_guard {
                        &mut pages.guards
                    } else {
                        &mut pages.own
                    };
                    add(ranges, range);
                }
            }
            // Pages of an image mapping were scanned separately.
            require_few(&pages)?;
        }
        Ok(pages)
    }

    /// Copies pages into `image`, as long as the bytes written stay within `room`.
    pub fn copy(
        &self,
        pages: &[Range<u64>],
        image: &mut LayersBuilder,
        room: u64,
    ) -> Result<(), SnapshotRefusal> {
        with_buffer(|buffer| {
            for batch in batches(pages) {
                let mut read = self.read(&batch, buffer)?;
                for range in &batch {
                    let (bytes, others) = read.split_at(length(range));
                    image.add(range, bytes).doing("write an image")?;
                    read = others;
                }
                self.require_kept(image.written, room)?;
            }
            Ok(())
        })
    }

    fn read<'b>(
        &self,
        batch: &[Range<u64>],
        buffer: &'b mut [u8],
    ) -> Result<&'b [u8], SnapshotRefusal> {
        let remote: Vec<_> = batch
            .iter()
            .map(|range| RemoteIoVec {
                base: usize::try_from(range.start).unwrap_or(0),
                len: length(range),
            })
            .collect();
        let all = batch.iter().map(length).sum();
        let pid = Pid::from_raw(self.worker.proc.pid);
        match process_vm_readv(pid, &mut [IoSliceMut::new(&mut buffer[..all])], &remote) {
            Ok(read) if read == all => return Ok(&buffer[..all]),
            Ok(_) | Err(Errno::EFAULT) => {}
            Err(errno) => return Err(errno).doing("read its memory"),
        }
        // The pages may be unreadable to the process itself, which /proc/PID/mem ignores.
        let memory = self.worker.proc.open("mem").doing("open its memory")?;
        let mut rest = &mut buffer[..all];
        for range in batch {
            let (piece, others) = rest.split_at_mut(length(range));
            match memory.read_exact_at(piece, range.start) {
                Err(_) => return Err(SnapshotRefusal::Changed),
                Ok(()) => rest = others,
            }
        }
        Ok(&buffer[..all])
    }
}

fn require_few(pages: &Pages) -> Result<(), SnapshotRefusal> {
    if pages.own.len() + pages.guards.len() > MAX_PIECES {
        return Err(FRAGMENTED);
    }
    Ok(())
}

fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(0)
}

/// Appends a range, merging it with the last one if they are adjacent.
fn add(pages: &mut Vec<Range<u64>>, range: Range<u64>) {
    match pages.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => pages.push(range),
    }
}

/// Splits the ranges into batches of at most [`AT_ONCE`] bytes.
fn batches(pages: &[Range<u64>]) -> impl Iterator<Item = Vec<Range<u64>>> {
    let mut pages = pages.iter().cloned();
    let mut next = pages.next();
    iter::from_fn(move || {
        let (mut batch, mut room) = (Vec::new(), AT_ONCE);
        while let Some(range) = next.as_mut().filter(|_| room > 0) {
            let end = range.end.min(range.start + room);
            batch.push(range.start..end);
            room -= end - range.start;
            range.start = end;
            if range.is_empty() {
                next = pages.next();
            }
        }
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_range_limit_covers_all_mappings() {
        let many = |count: usize| vec![0..1; count];
        let pages = |guards| Pages {
            own: many(MAX_PIECES / 2),
            guards: many(guards),
        };
        assert_eq!(require_few(&pages(MAX_PIECES / 2)), Ok(()));
        let refused = require_few(&pages(MAX_PIECES / 2 + 1));
        assert_eq!(refused, Err(FRAGMENTED));
    }

    #[test]
    fn batches_cover_every_byte_once() {
        let pages = [0..4096, 8192..8192 + 3 * AT_ONCE, 1 << 40..(1 << 40) + 4096];
        let batches: Vec<_> = batches(&pages).collect();
        let mut joined: Vec<Range<u64>> = Vec::new();
        for batch in &batches {
            assert!(
                batch
                    .iter()
                    .map(|range| range.end - range.start)
                    .sum::<u64>()
                    <= AT_ONCE
            );
            for range in batch {
                match joined.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => joined.push(range.clone()),
                }
            }
        }
        assert_eq!(joined, pages);
    }
}
