//! Captures the state of a worker that waits at its copy point.

use std::io::{BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstat, fstatat, major, minor};
use nix::unistd::Pid;

use super::descriptors::{Found, Kind, MAX_DESCRIPTORS, Outputs, keep};
use super::layers::LayersBuilder;
use super::medium::{DiskShare, Medium};
use super::pack::{Lent, pack};
use super::refusal::{Doing, SnapshotRefusal};
use super::regions::{self, MAX_TEXT, Region, name_heap};
use super::{Base, Image, ImageKind, Lists, require_access};
use crate::outcome::{LimitName, Limits};
use crate::plan::harmless;
use crate::protocol::message::CopyPoint;
use crate::supervisor::files::LentFiles;
use crate::supervisor::run::Files;
use crate::supervisor::spawn::Worker;
use crate::supervisor::zygote::Zygote;
use sandfork_jail::program::WorkerJail;
use sandfork_jail::restore::{Descriptor, Opened};
use sandfork_jail::sys;

/// How often the threads are counted before the capture is refused. A joined thread stays listed until the kernel has
/// run its exit, which can take a while on a busy host.
const THREAD_LOOKS: usize = 250;
const THREAD_PAUSE: Duration = Duration::from_millis(1);

/// A session's worker, and what the supervisor knows about it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The worker.
    pub worker: &'a Worker,
    /// The zygote that forked the worker.
    pub zygote: &'a Arc<Zygote>,
    /// The worker's jail.
    pub jail: &'a WorkerJail,
    /// The number of cells that the worker has run.
    pub cells: u64,
    /// The session's limits.
    pub limits: &'a Limits,
    /// The layers that a copy can share: those of the image that the worker was restored from, or of its last snapshot.
    pub base: Option<Base<'a>>,
    /// Files that the caller may still have open for writing.
    pub lent: &'a LentFiles,
    /// The disk space that the sandbox's images take.
    pub share: &'a DiskShare,
    /// The inode of the worker's end of the socket for the links of its starters, if it has one.
    pub starter_socket: Option<u64>,
}

/// Requires that the worker's only task is its main thread. `tree` lists the processes of the worker.
pub fn require_alone(worker: &Worker, tree: &[Pid]) -> Result<(), SnapshotRefusal> {
    let main = worker.proc.pid;
    if let Some(other) = tree.iter().find(|pid| pid.as_raw() != main) {
        let about = |file| std::fs::read(format!("/proc/{other}/{file}")).unwrap_or_default();
        let name = name_of(&about("comm"));
        let (pid, has_ended) = parse_status(&String::from_utf8_lossy(&about("status")));
        let pid = pid.unwrap_or(other.as_raw());
        let how = if has_ended {
            "has ended, and nothing has waited for it (wait, poll); do that first"
        } else {
            "still runs; end it first"
        };
        return Err(SnapshotRefusal::Other(format!(
            "process {pid} (`{}`) of the session {how}",
            harmless(&name)
        )));
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
            let name = name_of(&std::fs::read(other.path().join("comm")).unwrap_or_default());
            return Err(SnapshotRefusal::threads(tasks.len(), &name));
        }
        looks -= 1;
        thread::sleep(THREAD_PAUSE);
    }
}

/// Requires that `bytes` fit into `room`, which is what remains of `limit`.
pub fn require_room(
    limits: &Limits,
    bytes: u64,
    room: u64,
    limit: LimitName,
) -> Result<(), SnapshotRefusal> {
    if bytes <= room {
        return Ok(());
    }
    Err(SnapshotRefusal::Other(format!(
        "the session holds more than {}, its limit (`{}`)",
        limits.named(limit),
        limit.key()
    )))
}

/// Returns the name of a process or thread, which the guest chooses.
fn name_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// Parses a `status` file: the pid inside the session's namespace, and whether the process is a zombie.
fn parse_status(status: &str) -> (Option<i32>, bool) {
    let last_of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_ascii_whitespace().last()
    };
    let pid = last_of("NSpid:").and_then(|pid| pid.parse().ok());
    (pid, last_of("State:") == Some("(zombie)"))
}

impl Source<'_> {
    /// Copies the worker, which waits at the copy point `standing`.
    pub fn capture(
        &self,
        standing: CopyPoint,
        room: u64,
        medium: Medium,
    ) -> Result<Image, SnapshotRefusal> {
        require_access()?;
        let mut regions = self.regions("smaps")?;
        let stat = self.worker.proc.read_at_once("stat").doing("describe it")?;
        name_heap(&mut regions, &stat, standing.program_break);
        regions::require_mappable(&regions)?;
        self.require_paths(&regions)?;
        let pages = self.pages(&regions)?;
        let bytes: u64 = pages.own.iter().map(|range| range.end - range.start).sum();
        require_room(self.limits, bytes, self.limits.memory(), LimitName::Memory)?;
        let files = Files::measure(&self.worker.directories).bytes.unwrap_or(0);
        // The base may hold all of the memory.
        let least = self.base.map_or(bytes, |_| 0) + files;
        self.require_kept(least, room)?;
        if medium == Medium::Disk {
            // A restored worker maps nothing of an image on disk: all of its memory is private.
            let most = self.limits.memory_allowance();
            require_room(self.limits, bytes + files, most, LimitName::Memory)?;
        }
        let (memory, reserved) = medium.reserve(bytes.min(room), files, self.share)?;
        let mut builder = LayersBuilder::new(&memory, self.base);
        self.copy(&pages.own, &mut builder, room)?;
        let descriptors = self.descriptors()?;
        let mapped = self.mapped_files(&regions)?;
        let trees = medium.file(c"sandfork-files")?;
        // After a pause the session continues in another worker, while its caller keeps the files that it has open.
        let lent = (medium == Medium::Disk).then_some(Lent {
            files: self.lent,
            owner: self.worker.ids,
        });
        let packed = pack(&self.worker.directories, self.jail, &trees, lent)?;
        self.require_kept(builder.written + packed.bytes, room)?;
        // If the worker's process still exists now, its pid was not reused, so everything that was read belongs to it.
        sys::pidfd::is_there(self.worker.process.as_fd()).doing("find the worker")?;
        Ok(Image {
            zygote: Arc::clone(self.zygote),
            kind: match medium {
                Medium::Memory => ImageKind::Copy,
                Medium::Disk => ImageKind::Pause,
            },
            layers: builder.finish(
                medium.finish(&memory)?,
                (medium == Medium::Disk).then_some(reserved),
            ),
            trees: medium.finish(&trees)?,
            lists: Lists {
                regions,
                guards: pages.guards,
                standing,
                descriptors,
                files: mapped,
                cells: self.cells,
            },
            bytes_of_trees: packed.bytes,
            unreadable: packed.unreadable,
        })
    }

    /// Requires that an image of `bytes` fits into `room`.
    pub fn require_kept(&self, bytes: u64, room: u64) -> Result<(), SnapshotRefusal> {
        require_room(self.limits, bytes, room, LimitName::SnapshotBytes)
    }

    /// Parses the worker's mappings from `/proc/PID/maps` or `/proc/PID/smaps`.
    pub fn regions(&self, file: &str) -> Result<Vec<Region>, SnapshotRefusal> {
        let file = self.worker.proc.open(file).doing("read its mappings")?;
        let mut text = BufReader::new(file.take(MAX_TEXT));
        let regions = regions::parse(&mut text);
        if text.get_ref().limit() == 0 {
            return Err(SnapshotRefusal::Fragmented(regions::MAX_REGIONS));
        }
        regions
    }

    fn descriptors(&self) -> Result<Vec<Descriptor>, SnapshotRefusal> {
        let worker = self.worker;
        let inode = |pipe: &OwnedFd| {
            fstat(pipe)
                .map(|stat| stat.st_ino)
                .doing("describe its streams")
        };
        let outputs = Outputs {
            stdout: inode(&worker.ends.stdout)?,
            stderr: inode(&worker.ends.stderr)?,
            starter_socket: self.starter_socket,
        };
        let mut numbers = worker.proc.descriptors().doing("list its descriptors")?;
        numbers.sort_unstable();
        if numbers.len() > MAX_DESCRIPTORS {
            let number = numbers[MAX_DESCRIPTORS];
            return Err(SnapshotRefusal::Other(format!(
                "descriptor {number} is one of more than {MAX_DESCRIPTORS}; close it first"
            )));
        }
        let (mut kept, mut files) = (Vec::new(), Vec::new());
        for number in numbers {
            let found = self.find(number)?;
            if let Some(descriptor) = keep(&found, outputs)? {
                kept.push(self.same_as_before(descriptor, &mut files));
            }
        }
        Ok(kept)
    }

    fn find(&self, number: i32) -> Result<Found, SnapshotRefusal> {
        let proc = &self.worker.proc;
        let link = format!("fd/{number}");
        let stat =
            fstatat(&proc.dir, link.as_str(), AtFlags::empty()).doing("describe a descriptor")?;
        let kind = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFDIR => Kind::Directory,
            SFlag::S_IFCHR => Kind::Device((major(stat.st_rdev), minor(stat.st_rdev))),
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
            is_named: stat.st_nlink != 0,
        })
    }

    /// Detects a descriptor that shares its open file description with an earlier one, as after dup(2). `files` holds
    /// the earlier descriptors of distinct descriptions, in kcmp(2) order.
    fn same_as_before(&self, new: Descriptor, files: &mut Vec<i32>) -> Descriptor {
        if !matches!(new.open, Opened::File { .. }) {
            return new;
        }
        let pid = self.worker.proc.pid;
        let order = |old: &i32| sys::process::compare_files(pid, *old, new.number);
        match files.binary_search_by(order) {
            Ok(place) => Descriptor {
                open: Opened::Same(files[place]),
                ..new
            },
            Err(place) => {
                files.insert(place, new.number);
                new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_yields_inner_pid_and_zombie_state() {
        let status = "Name:\tState: Z\nState:\tS (sleeping)\nNSpid:\t4148\t40\t3\n";
        assert_eq!(parse_status(status), (Some(3), false));
        let ended = "Name:\ttrue\nState:\tZ (zombie)\nNSpid:\t4148\t40\t3\n";
        assert_eq!(parse_status(ended), (Some(3), true));
        assert_eq!(parse_status(""), (None, false));
    }
}
