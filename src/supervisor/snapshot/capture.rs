//! Copies a worker that stands.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstat, fstatat, major, minor};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::descriptors::{Found, Kind, MOST_DESCRIPTORS, Outputs, keep};
use super::medium::Medium;
use super::pack::{Lent, pack};
use super::refusal::{Doing, SnapshotRefusal};
use super::regions::{self, MOST_TEXT, Region, name_heap};
use super::{Image, ImageKind, Lists, Room, Standing};
use crate::outcome::{LimitName, Limits};
use crate::supervisor::run::Files;
use crate::supervisor::spawn::Worker;
use crate::supervisor::zygote::Zygote;
use sandfork_jail::program::WorkerJail;
use sandfork_jail::restore::{Descriptor, Opened};
use sandfork_jail::sys;

/// The most pieces of memory.
const MOST_PIECES: usize = 1 << 18;

/// The bytes that are copied at once, and the pieces.
const CHUNK: u64 = 1 << 20;
const PIECES: usize = 512;

/// How often the threads are counted before there are too many: one that was joined is there for a moment longer.
const THREAD_LOOKS: usize = 25;
const THREAD_PAUSE: Duration = Duration::from_millis(1);

/// A session's worker.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The worker.
    pub worker: &'a Worker,
    /// Its zygote.
    pub zygote: &'a Arc<Zygote>,
    /// Its jail.
    pub jail: &'a WorkerJail,
    /// How many cells it has run.
    pub cells: u64,
    /// Its limits.
    pub limits: &'a Limits,
    /// The numbers of the files that its caller got for writing.
    pub lent: &'a BTreeSet<u64>,
    /// The inode of the socket over which its programs are summoned, if it has one.
    pub summons: Option<u64>,
}

/// Requires that nothing of a worker runs but its main thread. `tree` has its processes.
pub fn require_alone(worker: &Worker, tree: &[Pid]) -> Result<(), SnapshotRefusal> {
    let main = worker.proc.pid();
    if let Some(other) = tree.iter().find(|pid| pid.as_raw() != main) {
        let name = std::fs::read(format!("/proc/{other}/comm")).unwrap_or_default();
        return Err(SnapshotRefusal::Process {
            pid: other.as_raw(),
            name: printable(&name),
        });
    }
    let mut looks = THREAD_LOOKS;
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{main}/task")).doing("list its threads")?;
        let tasks: Vec<_> = tasks.flatten().collect();
        let own = main.to_string();
        let Some(other) = tasks.iter().find(|task| task.file_name() != own.as_str()) else {
            return Ok(());
        };
        if looks == 0 {
            return Err(SnapshotRefusal::Threads {
                count: tasks.len(),
                name: printable(&std::fs::read(other.path().join("comm")).unwrap_or_default()),
            });
        }
        looks -= 1;
        thread::sleep(THREAD_PAUSE);
    }
}

/// Requires that so many bytes are within a limit, of which there is so much room.
pub fn require_room(
    limits: &Limits,
    bytes: u64,
    room: u64,
    limit: LimitName,
) -> Result<(), SnapshotRefusal> {
    if bytes <= room {
        return Ok(());
    }
    let most = limits.named(limit);
    let key = limit.key();
    Err(SnapshotRefusal::Large { most, key })
}

/// The name of a process or a thread, which the guest chooses.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name.trim_ascii_end());
    name.chars()
        .filter(|letter| !letter.is_control())
        .take(32)
        .collect()
}

impl Source<'_> {
    /// Copies the worker, which stands there.
    pub fn capture(
        &self,
        standing: Standing,
        room: Room,
        medium: Medium,
    ) -> Result<Image, SnapshotRefusal> {
        if !sys::checkpoint::IS_SUPPORTED {
            return Err(SnapshotRefusal::Processor);
        }
        let mut regions = self.regions("smaps")?;
        let stat = self.worker.proc.read_at_once("stat").doing("describe it")?;
        name_heap(&mut regions, &stat, standing.program_break);
        regions::require_mappable(&regions)?;
        let pages = self.pages(&regions)?;
        let bytes: u64 = pages.iter().map(|range| range.end - range.start).sum();
        require_room(self.limits, bytes, self.limits.memory(), LimitName::Memory)?;
        let files = Files::measure(&self.worker.directories).bytes.unwrap_or(0);
        require_room(
            self.limits,
            bytes + files,
            room.bytes,
            LimitName::SnapshotBytes,
        )?;
        if medium == Medium::Disk {
            // The worker that goes on maps none of it, and has all of it as its own.
            let most = self.limits.memory_allowance();
            require_room(self.limits, bytes + files, most, LimitName::Memory)?;
        }
        let (memory, reserved) = medium.reserve(bytes, files)?;
        self.copy(&pages, &memory)?;
        let descriptors = self.descriptors()?;
        let mapped = self.mapped_files(&regions)?;
        let directories: Vec<_> = self.jail.writable_directories().collect();
        let trees = medium.file(c"sandfork-files")?;
        // Elsewhere the worker goes on, with the files that its caller has.
        let lent = (medium == Medium::Disk).then_some(Lent {
            inodes: self.lent,
            owner: self.worker.ids,
        });
        let of_trees = pack(&self.worker.directories, &directories, &trees, lent)?;
        require_room(
            self.limits,
            bytes + of_trees,
            room.bytes,
            LimitName::SnapshotBytes,
        )?;
        // The number was this process's until now: all that was read is of this one.
        sys::pidfd::is_there(self.worker.process.as_fd()).doing("find the worker")?;
        Ok(Image {
            zygote: Arc::clone(self.zygote),
            kind: match medium {
                Medium::Memory => ImageKind::Copy,
                Medium::Disk => ImageKind::Pause,
            },
            _on_disk: (medium == Medium::Disk).then_some(reserved),
            memory: medium.finish(&memory)?,
            trees: medium.finish(&trees)?,
            lists: Lists {
                regions,
                pages,
                standing,
                descriptors,
                files: mapped,
                cells: self.cells,
            },
            bytes: bytes + of_trees,
        })
    }

    /// Its mappings, from `maps` or `smaps`.
    pub fn regions(&self, file: &str) -> Result<Vec<Region>, SnapshotRefusal> {
        let file = self.worker.proc.open(file).doing("read its mappings")?;
        let mut text = Vec::new();
        let read = file.take(MOST_TEXT + 1).read_to_end(&mut text);
        if read.doing("read its mappings")? as u64 > MOST_TEXT {
            let most = regions::MOST_REGIONS;
            return Err(SnapshotRefusal::Fragmented { most });
        }
        regions::parse(&text)
    }

    /// The pages of its own.
    pub fn pages(&self, regions: &[Region]) -> Result<Vec<Range<u64>>, SnapshotRefusal> {
        let proc = &self.worker.proc;
        let pagemap = proc.open("pagemap").doing("open its page map")?;
        let mut pages = Vec::new();
        let copied = |region: &&Region| !region.is_kernel() && !region.is_shared;
        for region in regions.iter().filter(copied) {
            if region.advice.is_wiped {
                continue;
            }
            let within = region.start..region.end;
            if region.is_image {
                add(&mut pages, within);
                continue;
            }
            match sys::pagemap::scan(pagemap.as_fd(), within, &mut pages, MOST_PIECES) {
                Err(Errno::ENOTTY) => return Err(SnapshotRefusal::Kernel),
                Err(Errno::E2BIG) => return Err(SnapshotRefusal::Fragmented { most: MOST_PIECES }),
                other => other.doing("list its pages")?,
            }
        }
        Ok(pages)
    }

    /// Copies pages into a file, one after the other.
    fn copy(&self, pages: &[Range<u64>], mut image: &File) -> Result<(), SnapshotRefusal> {
        let mut buffer = vec![0; usize::try_from(CHUNK).unwrap_or(0)];
        for batch in batches(pages) {
            let read = self.read(&batch, &mut buffer)?;
            image.write_all(read).doing("write an image")?;
        }
        Ok(())
    }

    fn read<'b>(
        &self,
        batch: &[Range<u64>],
        buffer: &'b mut [u8],
    ) -> Result<&'b [u8], SnapshotRefusal> {
        let length = |range: &Range<u64>| usize::try_from(range.end - range.start).unwrap_or(0);
        let remote: Vec<_> = batch
            .iter()
            .map(|range| RemoteIoVec {
                base: usize::try_from(range.start).unwrap_or(0),
                len: length(range),
            })
            .collect();
        let all = batch.iter().map(length).sum();
        let pid = Pid::from_raw(self.worker.proc.pid());
        match process_vm_readv(pid, &mut [IoSliceMut::new(&mut buffer[..all])], &remote) {
            Ok(read) if read == all => return Ok(&buffer[..all]),
            Ok(_) | Err(Errno::EFAULT) => {}
            Err(errno) => return Err(errno).doing("read its memory"),
        }
        // Memory that the process itself may not read.
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

    fn descriptors(&self) -> Result<Vec<Descriptor>, SnapshotRefusal> {
        let worker = self.worker;
        let inode = |pipe: &OwnedFd| {
            fstat(pipe)
                .map(|stat| stat.st_ino)
                .doing("describe its streams")
        };
        let outputs = Outputs {
            stdout: inode(&worker.stdout)?,
            stderr: inode(&worker.stderr)?,
            summons: self.summons,
        };
        let mut numbers = worker.proc.descriptors().doing("list its descriptors")?;
        numbers.sort_unstable();
        if numbers.len() > MOST_DESCRIPTORS {
            return Err(SnapshotRefusal::Descriptor {
                number: numbers[MOST_DESCRIPTORS],
                what: format!("one of more than {MOST_DESCRIPTORS}"),
            });
        }
        let mut kept: Vec<Descriptor> = Vec::new();
        for number in numbers {
            let found = self.find(number)?;
            if let Some(descriptor) = keep(&found, outputs)? {
                kept.push(self.same_as_before(descriptor, &kept));
            }
        }
        Ok(kept)
    }

    fn find(&self, number: i32) -> Result<Found, SnapshotRefusal> {
        let proc = &self.worker.proc;
        let link = format!("fd/{number}");
        let stat = fstatat(proc.as_fd(), link.as_str(), AtFlags::empty())
            .doing("describe a descriptor")?;
        let kind = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFDIR => Kind::Directory,
            SFlag::S_IFCHR => Kind::Device {
                numbers: (major(stat.st_rdev), minor(stat.st_rdev)),
            },
            SFlag::S_IFIFO => Kind::Pipe,
            SFlag::S_IFSOCK => Kind::Socket,
            _ => Kind::Other,
        };
        let info = proc
            .read(&format!("fdinfo/{number}"))
            .doing("describe a descriptor")?;
        let link = proc.link(&link).doing("describe a descriptor")?;
        Ok(Found {
            number,
            link: link.into_encoded_bytes(),
            info,
            kind,
            inode: stat.st_ino,
            names: stat.st_nlink,
        })
    }

    /// Finds one that shares its position, as after dup(2).
    fn same_as_before(&self, new: Descriptor, before: &[Descriptor]) -> Descriptor {
        let pid = self.worker.proc.pid();
        let is_same = |old: &&Descriptor| {
            let is_file = matches!(old.open, Opened::File { .. });
            is_file
                && old.open == new.open
                && sys::process::is_same_file(pid, old.number, new.number)
        };
        match before.iter().find(is_same) {
            None => new,
            Some(old) => Descriptor {
                open: Opened::Same(old.number),
                ..new
            },
        }
    }
}

/// Adds a range behind others.
fn add(pages: &mut Vec<Range<u64>>, range: Range<u64>) {
    match pages.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => pages.push(range),
    }
}

/// Ranges that are copied at once.
fn batches(pages: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let mut batches = Vec::new();
    let (mut batch, mut room) = (Vec::new(), CHUNK);
    for range in pages {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + room);
            batch.push(start..end);
            room -= end - start;
            start = end;
            if room == 0 || batch.len() == PIECES {
                batches.push(std::mem::take(&mut batch));
                room = CHUNK;
            }
        }
    }
    batches.extend((!batch.is_empty()).then_some(batch));
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_every_byte_once() {
        let pages = [0..4096, 8192..8192 + 3 * CHUNK, 1 << 40..(1 << 40) + 4096];
        let batches = batches(&pages);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for batch in &batches {
            assert!(
                batch
                    .iter()
                    .map(|range| range.end - range.start)
                    .sum::<u64>()
                    <= CHUNK
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
