//! Answers the system calls that a worker's filter forwards to the supervisor (seccomp_unotify(2)): calls that create
//! kernel objects whose cost is not charged to the guest, those of [`machine_calls`], [`own_signals`] and
//! [`SharedMemory`], and refused calls that are to be reported.
//!
//! **File locks.** The kernel charges locks to no cgroup and does not limit their number, and each close(2) of a file
//! walks all record locks of the file under a spinlock. A guest that splits one lock on a library into a million makes
//! every process of the host walk them. The guest's own processes walk them while they are killed, and the locks take
//! half a gigabyte of kernel memory (`fs/locks.c`). So a guest may lock only its own files and files that it has open
//! for writing, and may have a limited number of record locks.
//!
//! **epoll(7) watches** are counted per host user (`fs.epoll.max_user_watches`). A guest without its own uid could
//! exhaust them for its user, so it may add watches only at a limited rate.
//!
//! The supervisor checks the file behind a descriptor, and another thread of the guest may replace that file before the
//! kernel continues the call (seccomp_unotify(2)). This gains the guest only a lock that is counted too.
//!
//! **Refused calls** always get an error, `EPERM` in nearly all cases. If a guest makes many of them, the supervisor
//! answers at a limited rate, and the guest waits.

use std::cell::OnceCell;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{fstat, major, minor};
use nix::unistd::Pid;

use super::allowance::Allowance;
use super::refused_calls::RefusedCalls;
use super::run::Watch;
use super::session_dir::SessionDirectory;
use super::shared_memory::SharedMemory;
use super::verified_worker::VerifiedWorker;
use super::{clock, machine_calls, own_signals, proc_dir};
use sandfork_jail::sys::seccomp::{Notification, Reply, is_valid, receive, respond};

/// The most record locks of a worker. sqlite3 holds half a dozen per connection.
const MAX_LOCKS: u32 = 1024;

/// The most locks that a call adds: it may split a lock in two and put a new lock between them.
const MAX_ADDED_LOCKS: u32 = 2;

/// The watches that a worker may add at once, and the refill rate per second. The kernel allows a user some 200,000 for
/// each GiB of memory.
const WATCHES: u32 = 32_768;
const WATCHES_PER_SECOND: f64 = 256.0;

/// The refused calls of a worker that are answered at once, and the refill rate per second. A guest beyond that waits.
const REFUSALS: u32 = 4096;
const REFUSALS_PER_SECOND: f64 = 1024.0;
const PAUSE: Duration = Duration::from_millis(20);

/// The most calls to answer before the loop checks its other events again.
const MAX_BATCH: usize = 16;

/// Whether a call was pending.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Answered {
    One,
    None,
}

/// Answers the forwarded calls of one worker.
#[derive(Debug)]
pub struct ForwardedCalls<'a> {
    /// `None` once no process under the filter is left.
    listener: Option<BorrowedFd<'a>>,
    /// The roots of the guest's private file systems.
    roots: &'a [OwnedFd],
    /// The devices of `roots`, as numbers and in the notation of `/proc/locks`. Computed on the first use, because most
    /// guests lock nothing.
    devices: OnceCell<Vec<(u64, String)>>,
    /// The guest's directory on the host, if it has no private file systems.
    directory: Option<&'a Path>,
    /// An upper bound on the record locks that the worker holds.
    held_at_most: u32,
    /// Whether the guest has ever requested an open file description lock, whose owner `/proc/locks` does not report.
    has_ofd_locks: bool,
    watches: Allowance,
    shared_memory: SharedMemory,
    refusals: Allowance,
    refused: RefusedCalls,
    /// When to answer calls again.
    paused_until: Option<Instant>,
}

impl<'a> ForwardedCalls<'a> {
    /// Creates the state for a worker that has run no guest code yet.
    pub fn new(verified: &'a VerifiedWorker) -> Self {
        let worker = &verified.worker;
        let directory = verified.session.as_ref().map(SessionDirectory::path);
        let roots = directory.map_or(worker.directories.as_slice(), |_| &[]);
        let now = clock::now();
        Self {
            listener: worker.listener.as_ref().map(AsFd::as_fd),
            roots,
            devices: OnceCell::new(),
            directory,
            held_at_most: 0,
            has_ofd_locks: false,
            watches: Allowance::new(WATCHES, WATCHES_PER_SECOND, now),
            shared_memory: SharedMemory::default(),
            refusals: Allowance::new(REFUSALS, REFUSALS_PER_SECOND, now),
            refused: RefusedCalls::default(),
            paused_until: None,
        }
    }

    fn devices(&self) -> &[(u64, String)] {
        self.devices.get_or_init(|| {
            // A root that cannot be examined does not count as private: the guest may lock nothing there.
            let devices = self.roots.iter().filter_map(|root| fstat(root).ok());
            let devices = devices.map(|root| root.st_dev);
            let named = |device| format!("{:02x}:{:02x}", major(device), minor(device));
            devices.map(|device| (device, named(device))).collect()
        })
    }

    /// Returns the descriptor and events to poll for.
    pub fn source(&self, now: Instant) -> Option<(BorrowedFd<'a>, PollFlags)> {
        let listener = self.listener.filter(|_| self.paused_until(now).is_none());
        listener.map(|listener| (listener, PollFlags::POLLIN))
    }

    /// Returns the end of the current pause, if the guest has made too many refused calls.
    pub fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Takes the refused calls that were counted since they were last taken.
    pub fn take_refused(&mut self) -> RefusedCalls {
        self.refused.take()
    }

    /// Answers pending calls. Returns the time that this took.
    pub fn answer(&mut self, watch: &Watch) -> Duration {
        let began = clock::now();
        for _ in 0..MAX_BATCH {
            let Some((listener, _)) = self.source(began) else {
                break;
            };
            match self.answer_one(listener, watch) {
                Ok(Answered::One) => {}
                Ok(Answered::None) => break,
                // No process under the filter is left.
                Err(Errno::EPIPE) => self.listener = None,
                // A call that could not be received is still pending.
                Err(_) => self.paused_until = Some(clock::now() + PAUSE),
            }
        }
        clock::now() - began
    }

    fn answer_one(&mut self, listener: BorrowedFd, watch: &Watch) -> Result<Answered, Errno> {
        if !is_pending(listener)? {
            return Ok(Answered::None);
        }
        if let Some(call) = receive(listener)? {
            match own_signals::answer_signal(listener, call, watch) {
                Some(answered) => answered?,
                None => respond(listener, call.id, self.reply(listener, call, watch))?,
            }
        }
        Ok(Answered::One)
    }

    fn reply(&mut self, listener: BorrowedFd, call: Notification, watch: &Watch) -> Reply {
        if let Some(reply) = machine_calls::reply(listener, call, &watch.limits) {
            return reply;
        }
        match libc::c_long::from(call.call) {
            libc::SYS_epoll_ctl if self.watches.take(clock::now()) => Reply::Continue,
            libc::SYS_epoll_ctl => Reply::Error(Errno::ENOSPC),
            libc::SYS_mmap => self.shared_memory.reply(call, watch),
            libc::SYS_flock | libc::SYS_fcntl => self.reply_to_lock(listener, call, watch),
            _ => self.refuse(call),
        }
    }

    /// Refuses a call that the filter would refuse itself without a supervisor.
    fn refuse(&mut self, call: Notification) -> Reply {
        let errno = self.refused.count(call);
        let now = clock::now();
        if !self.refusals.take(now) {
            self.paused_until = Some(now + PAUSE);
        }
        Reply::Error(errno)
    }

    fn reply_to_lock(&mut self, listener: BorrowedFd, call: Notification, watch: &Watch) -> Reply {
        self.has_ofd_locks |= is_ofd_lock(call);
        let allowed = self.may_lock(call);
        // The thread's id may have been reused meanwhile.
        if !is_valid(listener, call.id) {
            return Reply::Error(Errno::ENOLCK);
        }
        match allowed {
            Err(errno) => Reply::Error(errno),
            Ok(()) if is_flock(call) || is_query(call) => Reply::Continue,
            Ok(()) if self.has_room(watch) => Reply::Continue,
            Ok(()) => Reply::Error(Errno::ENOLCK),
        }
    }

    /// Checks that the guest may lock the file behind the call's descriptor.
    fn may_lock(&self, call: Notification) -> Result<(), Errno> {
        let number = call.arguments[0] & u64::from(u32::MAX);
        let path = format!("/proc/{}/fd/{number}", call.thread);
        let file = fs::metadata(&path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => Errno::EBADF,
            _ => Errno::ENOLCK,
        })?;
        let own_device = self
            .devices()
            .iter()
            .any(|(device, _)| *device == file.dev());
        let beneath = |own| fs::read_link(&path).is_ok_and(|file| file.starts_with(own));
        let is_own = own_device || self.directory.is_some_and(beneath);
        let is_file = file.is_file() || file.file_type().is_fifo();
        let info = || proc_dir::read(format!("/proc/{}/fdinfo/{number}", call.thread).as_ref());
        if is_own || is_file && info().is_ok_and(|info| is_open_for_writing(&info)) {
            Ok(())
        } else {
            Err(Errno::ENOLCK)
        }
    }

    /// Whether the worker may have more record locks. They are counted only when the upper bound reaches the limit,
    /// because the guest decides how many locks a call adds and releases.
    fn has_room(&mut self, watch: &Watch) -> bool {
        if self.held_at_most + MAX_ADDED_LOCKS > MAX_LOCKS {
            // If the kernel reports nothing, assume the worst.
            self.held_at_most = match proc_dir::read(Path::new("/proc/locks")) {
                Ok(table) => self.count(&table, &watch.tree()),
                Err(_) => MAX_LOCKS,
            };
        }
        let has_room = self.held_at_most + MAX_ADDED_LOCKS <= MAX_LOCKS;
        if has_room {
            self.held_at_most += MAX_ADDED_LOCKS;
        }
        has_room
    }

    /// Returns an upper bound on the worker's record locks, from the machine-wide table (proc_locks(5)): all locks on
    /// its private file systems, and its processes' locks on others.
    fn count(&self, table: &str, processes: &[Pid]) -> u32 {
        let is_counted = |line: &&str| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (kind, process, location) = (fields.next(), fields.nth(2), fields.next());
            let device = location
                .and_then(|location| location.rsplit_once(':'))
                .map(|it| it.0);
            let is_own = self.devices().iter().any(|(_, own)| device == Some(own));
            let process = process.and_then(|number| number.parse().ok());
            match kind {
                Some("POSIX") => {
                    is_own || processes.iter().any(|pid| process == Some(pid.as_raw()))
                }
                Some("OFDLCK") => is_own || self.has_ofd_locks,
                _ => false,
            }
        };
        u32::try_from(table.lines().filter(is_counted).count()).unwrap_or(u32::MAX)
    }
}

/// Whether the call sets an open file description lock (`F_OFD_SETLK`).
fn is_ofd_lock(call: Notification) -> bool {
    is_fcntl_command(call, [libc::F_OFD_SETLK, libc::F_OFD_SETLKW])
}

/// Whether the call only queries a lock (`F_GETLK`).
fn is_query(call: Notification) -> bool {
    is_fcntl_command(call, [libc::F_GETLK, libc::F_OFD_GETLK])
}

/// Whether the call is fcntl(2) with one of these commands. The kernel uses only the low 32 bits of the argument.
fn is_fcntl_command(call: Notification, requests: [libc::c_int; 2]) -> bool {
    let request = call.arguments[1].cast_signed() & 0xffff_ffff;
    !is_flock(call) && requests.map(i64::from).contains(&request)
}

fn is_flock(call: Notification) -> bool {
    libc::c_long::from(call.call) == libc::SYS_flock
}

/// Whether a call is pending. Returns an error if no process under the filter is left.
fn is_pending(listener: BorrowedFd) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(listener, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO)?;
    let found = fds[0].revents().unwrap_or(PollFlags::POLLERR);
    if found.contains(PollFlags::POLLIN) {
        Ok(true)
    } else if found.is_empty() {
        Ok(false)
    } else {
        Err(Errno::EPIPE)
    }
}

/// Whether a descriptor is open for writing, according to its `/proc/PID/fdinfo` (proc_pid_fdinfo(5)).
fn is_open_for_writing(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
1: POSIX  ADVISORY  READ  41 00:2a:7 0 0
2: POSIX  ADVISORY  WRITE 77 fd:01:9 0 EOF
2: -> POSIX  ADVISORY  WRITE 42 fd:01:9 0 EOF
3: POSIX  ADVISORY  READ  42 fd:01:10 2 2
4: FLOCK  ADVISORY  WRITE 42 00:2a:8 0 EOF
5: OFDLCK ADVISORY  READ  -1 fd:01:11 0 EOF
6: LEASE  ACTIVE    READ  42 fd:01:12 0 EOF
";

    fn locks(devices: &[&str]) -> ForwardedCalls<'static> {
        ForwardedCalls {
            listener: None,
            roots: &[],
            devices: devices
                .iter()
                .map(|name| (0, (*name).to_owned()))
                .collect::<Vec<_>>()
                .into(),
            directory: None,
            held_at_most: 0,
            has_ofd_locks: false,
            watches: Allowance::new(WATCHES, WATCHES_PER_SECOND, clock::now()),
            shared_memory: SharedMemory::default(),
            refusals: Allowance::new(REFUSALS, REFUSALS_PER_SECOND, clock::now()),
            refused: RefusedCalls::default(),
            paused_until: None,
        }
    }

    #[test]
    fn worker_record_locks_are_counted() {
        let of = |devices: &[&str], pids: &[i32]| {
            let pids: Vec<Pid> = pids.iter().copied().map(Pid::from_raw).collect();
            locks(devices).count(TABLE, &pids)
        };
        assert_eq!(of(&["00:2a"], &[]), 1);
        assert_eq!(of(&["00:2a"], &[42]), 2);
        assert_eq!(of(&[], &[41, 42]), 2);
        assert_eq!(of(&[], &[]), 0);
        let mut with_ofd_locks = locks(&["00:2a"]);
        with_ofd_locks.has_ofd_locks = true;
        assert_eq!(with_ofd_locks.count(TABLE, &[]), 2);
        assert_eq!(with_ofd_locks.count("", &[]), 0);
    }

    /// The clock is stopped while the command is stopped.
    #[test]
    fn pause_follows_the_guest_clock() {
        let standing = clock::StoppedClock::begin();
        std::thread::sleep(Duration::from_millis(2));
        drop(standing);
        let mut calls = locks(&[]);
        let call = Notification {
            id: 0,
            thread: 0,
            arguments: [0; 6],
            call: 0,
        };
        while calls.paused_until.is_none() {
            calls.refuse(call);
        }
        let now = clock::now();
        assert!(
            calls
                .paused_until(now)
                .is_none_or(|until| until <= now + PAUSE)
        );
    }

    #[test]
    fn fdinfo_flags_show_write_access() {
        assert!(is_open_for_writing(
            "pos:\t0\nflags:\t0100002\nmnt_id:\t25\n"
        ));
        assert!(is_open_for_writing("flags:\t0100001\n"));
        assert!(!is_open_for_writing("flags:\t0100000\n"));
        assert!(!is_open_for_writing("flags:\t012000000\n"));
        assert!(!is_open_for_writing(""));
    }
}
