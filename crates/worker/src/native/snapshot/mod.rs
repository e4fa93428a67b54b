//! Suspends a worker while its memory is copied, and replaces a worker's memory by such a copy.
//!
//! Guest code can call both functions. The first then sends the supervisor a message that it did not request, which
//! ends the worker. The second waits for descriptors that never arrive.

mod nearest;
mod shareable;
mod unpack;

use std::fs::File;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, chdir, close, getcwd, lseek};
use serde_json::json;

pub use self::shareable::Arenas;

use super::run::Link;
use sandfork_jail::restore::{Descriptor, Opened, Order};
use sandfork_jail::sys::checkpoint::{Blob, Resumed, program_break, suspend};
use sandfork_jail::sys::kernel_pointers::{detach, thread_pointer};
use sandfork_jail::sys::kernel_state::KernelState;
use sandfork_jail::{DATA, sys};

/// The standard streams.
const STREAMS: Range<RawFd> = 0..3;

/// `stand`: called in a session's worker, between two cells, with the id of the request. Returns an empty string in
/// this worker, and the id of another request in a worker that was restored from the copy.
pub fn suspend_for_copy(number: &str) -> Result<String, String> {
    let number = request_id(number)?;
    require_directory()?;
    let state = KernelState::save().map_err(|errno| failed("read the kernel's state", errno))?;
    let link = Link::inherited();
    let mut frame = StandingFrame::new(number, &[], &shareable::ranges());
    let resumed = suspend(|place| {
        // From here until the supervisor replies, nothing is allocated, because the supervisor copies this memory
        // meanwhile.
        link.send(frame.finish(place));
        let mut lengths = [0; 8];
        link.peek(&mut lengths);
    });
    match resumed {
        Resumed::Original => {
            // The only message that the supervisor sends now is the one to continue.
            let lengths = link.take(8);
            let lengths = lengths.chunks(4).map(|part| {
                let part = [part[0], part[1], part[2], part[3]];
                u32::from_le_bytes(part) as usize
            });
            link.take(lengths.sum());
            Ok(String::new())
        }
        Resumed::Copy(number) => {
            state
                .load()
                .map_err(|errno| failed("restore the kernel's state", errno))?;
            Ok(number.to_string())
        }
    }
}

fn request_id(number: &str) -> Result<u64, String> {
    let number = number.parse();
    number.map_err(|_| "the id of the request is not a number".to_owned())
}

/// Checks that a restored copy can enter the current directory, because the guest may have removed its own access. A
/// directory that was removed has no path, and copies start in the work directory.
fn require_directory() -> Result<(), String> {
    let Ok(path) = getcwd() else { return Ok(()) };
    chdir(&path).map_err(|errno| {
        let (path, errno) = (path.display(), errno.desc());
        format!(
            "the current directory `{path}` cannot be entered again: {errno}; change its mode first (chmod), or leave it"
        )
    })
}

/// The frame by which a worker reports that it is suspended. It has room for the address of the resume point, which is
/// known last.
struct StandingFrame(Vec<u8>);

impl StandingFrame {
    /// The number of digits of the largest address.
    const ROOM: usize = 20;

    fn new(number: u64, images: &[RawFd], shareable: &[[u64; 2]]) -> Self {
        let (images, shareable) = (json!(images), json!(shareable));
        let (end, thread) = (program_break(), thread_pointer());
        let text = format!(
            r#"{{"kind":"standing","id":{number},"images":{images},"shareable":{shareable},"break":{end},"thread":{thread},"place":"#
        );
        let mut frame = Vec::with_capacity(8 + text.len() + Self::ROOM + 1);
        frame.extend([0; 8]);
        frame.extend(text.bytes());
        Self(frame)
    }

    /// Appends the address. Does not allocate.
    fn finish(&mut self, place: u64) -> &[u8] {
        // Cannot fail or allocate: the capacity suffices.
        _ = write!(self.0, "{place}}}");
        let length = u32::try_from(self.0.len() - 8).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        &self.0
    }
}

/// `restore`: called in a worker that was checked and has run no guest code, with the id of the request and the
/// supervisor's order. Returns only if an operation failed before the memory was replaced.
pub fn restore(argument: &str) -> Result<String, String> {
    let (number, order) = argument.split_once('\n').ok_or("the request has no id")?;
    let number = request_id(number)?;
    let order: Order = serde_json::from_str(order).map_err(|error| error.to_string())?;
    let images = restore_outside_memory(&order)?;
    drop(order);
    let mut frame = StandingFrame::new(number, &images, &[]);
    // From here on nothing is allocated: the supervisor now inspects this process's memory and computes the steps from
    // what it finds.
    Link::inherited().send(frame.finish(0));
    let plan = ManuallyDrop::new(passed("steps")?);
    let blob = Blob::map(plan.as_fd()).map_err(|errno| failed("map the steps", errno))?;
    close(plan.as_raw_fd()).map_err(|errno| failed("close the steps", errno))?;
    detach().map_err(|errno| failed("detach its memory from the kernel", errno))?;
    let ended = blob.enter().err().unwrap_or(Errno::EINVAL);
    Err(failed("enter the steps", ended))
}

/// Restores everything but memory and [`KernelState`]. Returns the descriptors of the image files with the memory.
fn restore_outside_memory(order: &Order) -> Result<Vec<RawFd>, String> {
    let images = (0..order.images).map(|_| passed("memory"));
    let images = images.collect::<Result<Vec<_>, _>>()?;
    let trees = passed("files")?;
    unpack::unpack(&File::from(trees), &order.trees)?;
    reopen(order, images)
}

/// Receives the descriptor that is attached to the next byte.
pub fn passed(what: &str) -> Result<OwnedFd, String> {
    let data = ManuallyDrop::new(sys::descriptors::inherited(DATA));
    let received = sys::descriptors::receive(data.as_fd(), &mut [0; 1]);
    let passed = received.and_then(|(_, mut fds)| fds.pop().ok_or(Errno::EBADF));
    passed.map_err(|errno| format!("could not receive the {what}: {}", errno.desc()))
}

/// Formats a failed operation as a sentence.
fn failed(what: &str, errno: Errno) -> String {
    format!("could not {what}: {}", errno.desc())
}

/// Recreates the descriptors of the other process. Returns the numbers of the images, which do not collide with them.
fn reopen(order: &Order, images: Vec<OwnedFd>) -> Result<Vec<RawFd>, String> {
    let wanted = &order.descriptors;
    let is_wanted = |number: &RawFd| wanted.iter().any(|one| one.number == *number);
    let mut images: Vec<RawFd> = images.into_iter().map(IntoRawFd::into_raw_fd).collect();
    let taken = images.clone();
    let is_free = |number: &RawFd| !is_wanted(number) && !taken.contains(number);
    let mut free = (STREAMS.end..DATA).filter(is_free);
    let mut copy = |from: RawFd| -> Result<RawFd, Errno> {
        let number = free.next().ok_or(Errno::EMFILE)?;
        sys::descriptors::place_at(from, number, OFlag::O_CLOEXEC)?;
        Ok(number)
    };
    // Copy the standard streams first: descriptors are duplicated from them, and they may be replaced before that.
    let mut streams = Vec::new();
    for stream in STREAMS {
        streams.push(copy(stream).map_err(|errno| failed("copy a standard stream", errno))?);
    }
    for image in images.iter_mut().filter(|image| is_wanted(image)) {
        let moved = copy(*image).map_err(|errno| failed("move an image's descriptor", errno))?;
        close(*image).map_err(|errno| failed("close an image", errno))?;
        *image = moved;
    }
    for one in wanted {
        make(one, &streams).map_err(|errno| match &one.open {
            Opened::File { path, .. } => format!("`{path}` cannot be opened again: {errno}"),
            Opened::Same(_) => format!("descriptor {} cannot be recreated: {errno}", one.number),
        })?;
    }
    let unwanted = STREAMS.filter(|stream| !is_wanted(stream));
    for number in unwanted.chain(streams) {
        close(number).map_err(|errno| failed("close a standard stream", errno))?;
    }
    Ok(images)
}

/// Recreates a descriptor. `streams` contains copies of the standard streams.
fn make(one: &Descriptor, streams: &[RawFd]) -> Result<(), Errno> {
    let on_exec = if one.inherited {
        OFlag::empty()
    } else {
        OFlag::O_CLOEXEC
    };
    let place = |from| sys::descriptors::place_at(from, one.number, on_exec);
    match &one.open {
        Opened::Same(number) => {
            let stream = usize::try_from(*number).ok().and_then(|at| streams.get(at));
            place(*stream.unwrap_or(number))
        }
        Opened::File {
            path,
            flags,
            position,
        } => {
            let opened = open_again(path, *flags, *position)?;
            if opened.as_raw_fd() == one.number {
                return sys::descriptors::keep(opened, on_exec);
            }
            place(opened.as_raw_fd())
        }
    }
}

fn open_again(path: &str, flags: i32, position: u64) -> Result<OwnedFd, Errno> {
    let once = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_TRUNC;
    let flags = OFlag::from_bits_retain(flags) - once;
    let opened = open(
        path,
        flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY,
        Mode::empty(),
    )?;
    if position > 0 {
        let position = i64::try_from(position).map_err(|_| Errno::EOVERFLOW)?;
        lseek(&opened, position, Whence::SeekSet)?;
    }
    Ok(opened)
}
