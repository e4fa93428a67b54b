//! How much memory the interpreter's own objects may have, where a cgroup ends a guest at the whole limit.
//!
//! An object that would not fit raises `MemoryError`, as on a machine without memory left, and the guest goes
//! on. This protects nothing: what is allocated by other means reaches the cgroup's limit.
#![allow(clippy::unnecessary_wraps)] // the functions of the module's table are of one type

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;

use super::python::{self, Admission, Object, Raised};
use sandfork_jail::sys::memory::trim;
use sandfork_jail::sys::procfs::private;

/// What a worker may have beyond its zygote, bytes.
static ALLOWANCE: AtomicU64 = AtomicU64::new(u64::MAX);
/// What it may have in all.
static MOST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Bytes that may be allocated before the process is measured. A zygote is never measured.
static UNMEASURED: AtomicU64 = AtomicU64::new(u64::MAX);
/// The reserve, while a guest's exception is described.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Whether the guest was refused memory since its last report.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Bytes for the report of a guest that has used up its memory. They are a part of what lies between the
/// allowance and the whole limit, at least 8 MiB.
const RESERVE: u64 = 4 << 20;

/// Measuring costs about as much as filling this many bytes.
const LEAST_UNMEASURED: u64 = 256 << 10;

/// Sets what workers that are forked from this process may have: `bytes` beyond what it has. `proc` is the root of
/// a procfs.
pub fn set_allowance(proc: BorrowedFd, bytes: u64) -> Result<(), Errno> {
    let has = private(proc, "self/status")?;
    MOST.store(has.saturating_add(bytes), Relaxed);
    ALLOWANCE.store(bytes, Relaxed);
    python::guard_allocators::<Allowance>();
    Ok(())
}

struct Allowance;

impl Admission for Allowance {
    fn admits(size: usize, replaced: impl FnOnce() -> usize) -> bool {
        // Threads may count at the same time and lose each other's bytes, which the next measurement finds.
        if let Some(rest) = UNMEASURED.load(Relaxed).checked_sub(size as u64) {
            UNMEASURED.store(rest, Relaxed);
            return true;
        }
        let fits = fits(size.saturating_sub(replaced()) as u64);
        if !fits {
            REFUSED.store(true, Relaxed);
        }
        fits
    }
}

/// Measures, and releases what the C library keeps of freed memory before it refuses.
#[cold]
fn fits(bytes: u64) -> bool {
    let errno = Errno::last_raw();
    let fits = has_room(bytes) || {
        trim();
        has_room(bytes)
    };
    Errno::set_raw(errno);
    fits
}

fn has_room(bytes: u64) -> bool {
    // Without a /proc nothing can be measured, and the cgroup alone holds the limit.
    let Ok(has) = private(AT_FDCWD, "/proc/self/status") else {
        return true;
    };
    let most = MOST.load(Relaxed).saturating_add(RESERVED.load(Relaxed));
    let rest = most.checked_sub(has.saturating_add(bytes));
    // What is not counted grows too, so that only a part of the rest is given out unmeasured.
    let unmeasured = rest.map_or(0, |rest| (rest / 2).max(LEAST_UNMEASURED));
    UNMEASURED.store(unmeasured, Relaxed);
    rest.is_some()
}

/// Begins to limit this process, a worker that the supervisor has checked. Before that, the supervisor would see
/// the file that measuring opens.
pub fn begin() {
    UNMEASURED.store(ALLOWANCE.load(Relaxed) / 2, Relaxed);
}

/// In Python: begins to limit this process.
pub fn limit_objects(_: &Object) -> Result<Object, Raised> {
    begin();
    Ok(Object::none())
}

/// In Python: counts the data of numpy's arrays too, once the module with its table of functions is loaded.
pub fn include_arrays(module: &Object) -> Result<Object, Raised> {
    python::guard_arrays::<Allowance>(module);
    Ok(Object::none())
}

/// In Python: adds the reserve to what objects may have. Needs no memory. Whether the guest was refused some.
pub fn begin_report(_: &Object) -> Result<Object, Raised> {
    RESERVED.store(RESERVE, Relaxed);
    Object::truth(REFUSED.load(Relaxed))
}

/// In Python: takes it back. If there is no room for it, the next cell has it, which may be the one that frees
/// memory.
pub fn end_report(_: &Object) -> Result<Object, Raised> {
    REFUSED.store(false, Relaxed);
    if RESERVED.load(Relaxed) > 0 && fits(2 * RESERVE) {
        RESERVED.store(0, Relaxed);
    }
    Ok(Object::none())
}
