//! Tracks the directories of one watch, and translates inotify events about them.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::inotify::{AddWatchFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::protocol::caller::FileEvent;
use crate::supervisor::files::{Act, FileError, open_beneath};
use crate::supervisor::programs::BesideRefusal;

/// The maximum number of directories of a watch. The kernel keeps about a kilobyte for each.
const MAX_DIRECTORIES: usize = 1_024;
/// The maximum number of entries scanned for directories, at the start or after one read of events.
const MAX_ENTRIES: usize = 50_000;
/// The maximum number of directories scanned after one read of events. A guest that moves a large tree back and forth
/// would cause more.
const MAX_VISITS: usize = MAX_DIRECTORIES + 1;
/// The maximum number of reads that are discarded during a rescan.
const MAX_SKIPPED: usize = 1_024;
/// The maximum total length of the paths in the events of one read, in bytes.
const MAX_BYTES: usize = 256 << 10;

const CREATED: AddWatchFlags = AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_MOVED_TO);
const GONE: AddWatchFlags = AddWatchFlags::IN_IGNORED.union(AddWatchFlags::IN_UNMOUNT);
const MASK: AddWatchFlags = CREATED
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MODIFY)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_ONLYDIR);

/// The extent of a watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Depth {
    /// The entries of the directory.
    Directory,
    /// The entries of the directory and of all directories below it.
    Tree,
}

/// The watched directories by watch descriptor, with paths relative to the root. The root's descriptor keeps the
/// directory alive after its removal; no events happen in it then.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    depth: Depth,
    directories: HashMap<WatchDescriptor, PathBuf>,
}

/// The result of one read.
#[derive(Debug)]
struct Found {
    events: Vec<FileEvent>,
    /// The index of the last event of each path.
    last: HashMap<PathBuf, usize>,
    /// The remaining budget of path bytes and of entries.
    bytes: usize,
    entries: usize,
    /// The remaining budget of directory visits.
    visits: usize,
    /// Whether the set of watched directories may be outdated.
    is_stale: bool,
    /// The first reason for which events are incomplete.
    lost: Option<Lost>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Lost {
    /// The kernel's queue or this process's budget was full.
    Events,
    /// There are more directories or entries than the budget allows.
    TooMany,
    Failed(PathBuf, Errno),
}

/// Whether the entries of a scanned directory are reported as created.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Entries {
    New,
    Known,
}

impl Tree {
    /// Watches the directory behind this descriptor. `path` is the caller's name for it.
    pub fn new(
        inotify: &Inotify,
        root: OwnedFd,
        depth: Depth,
        path: &str,
    ) -> Result<Self, BesideRefusal> {
        let mut tree = Self {
            root,
            depth,
            directories: HashMap::new(),
        };
        let mut found = Found::new();
        tree.walk(inotify, PathBuf::new(), Entries::Known, &mut found);
        let failed = |path: &Path, errno| {
            let path = path.to_string_lossy().into_owned();
            let act = Act::Watch;
            Err(FileError::Failed { path, act, errno }.into())
        };
        match found.lost {
            None if tree.directories.is_empty() => failed(Path::new(path), Errno::ENOENT),
            None | Some(Lost::Events) => Ok(tree),
            Some(Lost::TooMany) => Err(BesideRefusal::request(format!(
                "`{path}` has more than 1,024 directories or 50,000 entries: watch a subdirectory, or \
                 this directory without those below"
            ))),
            Some(Lost::Failed(below, errno)) => failed(&Path::new(path).join(below), errno),
        }
    }

    /// Reads up to 4 KiB of queued events. Returns `None` if the queue is empty. The result may be empty, because some
    /// inotify events yield no event.
    pub fn read(&mut self, inotify: &Inotify) -> Option<Vec<FileEvent>> {
        let queued = inotify.read_events().ok()?;
        let mut found = Found::new();
        for event in queued {
            self.on_event(inotify, &event, &mut found);
            if found.is_stale {
                self.catch_up(inotify, &mut found);
                break;
            }
        }
        if found.lost.is_some() {
            found.events.push(FileEvent::Overflow);
        }
        Some(found.events)
    }

    fn on_event(&mut self, inotify: &Inotify, event: &InotifyEvent, found: &mut Found) {
        let is = |flags: AddWatchFlags| event.mask.intersects(flags);
        if is(AddWatchFlags::IN_Q_OVERFLOW) {
            found.lose(Lost::Events);
            found.is_stale = true;
            return;
        }
        if is(GONE) {
            self.directories.remove(&event.wd);
            return;
        }
        // Events about a watched directory itself are reported by its parent.
        let directory = self.directories.get(&event.wd);
        let Some((directory, name)) = directory.zip(event.name.as_deref()) else {
            return;
        };
        let path = directory.join(name);
        let is_directory = is(AddWatchFlags::IN_ISDIR) && self.depth == Depth::Tree;
        if is(CREATED) {
            found.add(&path, FileEvent::Create);
            if is_directory {
                self.walk(inotify, path, Entries::New, found);
            }
        } else if is(AddWatchFlags::IN_MOVED_FROM) {
            found.add(&path, FileEvent::Rename);
            if is_directory {
                self.forget(inotify, &path);
            }
        } else if is(AddWatchFlags::IN_DELETE) {
            found.add(&path, FileEvent::Remove);
        } else if is(AddWatchFlags::IN_MODIFY) {
            found.add(&path, FileEvent::Write);
        } else if is(AddWatchFlags::IN_ATTRIB) {
            found.add(&path, FileEvent::Chmod);
        }
    }

    /// Watches a directory and, in a tree, those below it. Each directory is watched before its entries are read, so
    /// that no entry is missed. An entry created in between is found twice.
    fn walk(&mut self, inotify: &Inotify, from: PathBuf, entries: Entries, found: &mut Found) {
        let mut left = vec![from];
        while let Some(path) = left.pop() {
            match self.visit(inotify, &path, entries, found, &mut left) {
                // The directory was removed or replaced meanwhile, for which there is another event, or another file
                // system is mounted there, which is not part of the session.
                Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => {}
                Err(errno) => found.lose(Lost::Failed(path, errno)),
            }
        }
    }

    fn visit(
        &mut self,
        inotify: &Inotify,
        path: &Path,
        entries: Entries,
        found: &mut Found,
        below: &mut Vec<PathBuf>,
    ) -> Result<(), Errno> {
        if found.visits == 0 {
            found.lose(Lost::TooMany);
            found.is_stale = true;
            return Ok(());
        }
        found.visits -= 1;
        if self.directories.len() >= MAX_DIRECTORIES {
            found.lose(Lost::TooMany);
            return Ok(());
        }
        let directory = self.open(path)?;
        let watched = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let number = inotify.add_watch(watched.as_str(), MASK)?;
        self.directories.insert(number, path.to_owned());
        if self.depth == Depth::Directory {
            return Ok(());
        }
        for entry in Dir::from_fd(directory)?.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if found.entries == 0 {
                found.lose(Lost::TooMany);
                return Ok(());
            }
            found.entries -= 1;
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            if entries == Entries::New {
                found.add(&path, FileEvent::Create);
            }
            // Some file systems do not report the type of an entry.
            if matches!(entry.file_type(), Some(Type::Directory) | None) {
                below.push(path);
            }
        }
        Ok(())
    }

    /// Opens a directory beneath the root without following links.
    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = match path.as_os_str().as_bytes() {
            b"" => b".",
            path => path,
        };
        let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        open_beneath(&self.root, &path, flags)
    }

    /// Removes the watches of a directory that was moved away, and of those below it.
    fn forget(&mut self, inotify: &Inotify, path: &Path) {
        self.directories.retain(|number, directory| {
            let stays = !directory.starts_with(path);
            if !stays {
                // Fails if the directory was removed as well.
                _ = inotify.rm_watch(*number);
            }
            stays
        });
    }

    /// Scans the tree again after events were lost or too numerous to follow.
    fn catch_up(&mut self, inotify: &Inotify, found: &mut Found) {
        // Discard queued events: the scan covers what they report.
        for _ in 0..MAX_SKIPPED {
            if inotify.read_events().is_err() {
                break;
            }
        }
        (found.entries, found.visits) = (MAX_ENTRIES, MAX_VISITS);
        let before: HashSet<_> = self.directories.drain().map(|(number, _)| number).collect();
        // A directory that is still watched keeps its watch descriptor.
        self.walk(inotify, PathBuf::new(), Entries::Known, found);
        for number in before {
            if !self.directories.contains_key(&number) {
                // Fails if the directory was removed.
                _ = inotify.rm_watch(number);
            }
        }
    }
}

impl Found {
    fn new() -> Self {
        Self {
            events: Vec::new(),
            last: HashMap::new(),
            bytes: MAX_BYTES,
            entries: MAX_ENTRIES,
            visits: MAX_VISITS,
            is_stale: false,
            lost: None,
        }
    }

    fn lose(&mut self, lost: Lost) {
        self.lost.get_or_insert(lost);
    }

    /// Adds an event, unless it equals the last event of the same path.
    fn add(&mut self, path: &Path, event: fn(String) -> FileEvent) {
        let event = event(path.to_string_lossy().into_owned());
        let last = self.last.get(path).map(|place| &self.events[*place]);
        if last == Some(&event) {
            return;
        }
        let length = path.as_os_str().len();
        if length > self.bytes {
            self.lose(Lost::Events);
            return;
        }
        self.bytes -= length;
        self.last.insert(path.to_owned(), self.events.len());
        self.events.push(event);
    }
}
