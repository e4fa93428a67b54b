//! Limits the memory of the interpreter's objects, below the limit at which the cgroup kills the guest.
//!
//! An allocation beyond the limit raises `MemoryError`, as on a machine without free memory, and the guest continues.
//! This is not a security boundary: only the cgroup's limit stops memory that is allocated by other means.
#![allow(clippy::unnecessary_wraps)] // functions in the module's table share one signature

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;

use super::python::{self, Admission, Object, Raised};
use sandfork_jail::sys::memory::trim;
use sandfork_jail::sys::procfs::private;

/// The memory that a worker may use beyond its zygote's, bytes.
static ALLOWANCE: AtomicU64 = AtomicU64::new(u64::MAX);
/// The memory that a worker may use in total, bytes.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
/// The bytes that may be allocated before the process is measured again. A zygote is never measured.
static UNMEASURED: AtomicU64 = AtomicU64::new(u64::MAX);
/// The reserve that is currently granted, while a guest's exception is described.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Whether the guest was refused memory since its last report.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The reserve for the report of a guest that has used up its memory, bytes. It is part of the difference between the
/// allowance and the cgroup's limit, which is at least 8 MiB.
const RESERVE: u64 = 4 << 20;

/// The minimum number of bytes between measurements. A measurement costs about as much as filling this many bytes.
const MIN_UNMEASURED: u64 = 256 << 10;

/// Sets the allowance of workers forked from this process: `bytes` beyond its current memory. `proc` is the root of a
/// procfs.
pub fn set_allowance(proc: BorrowedFd, bytes: u64) -> Result<(), Errno> {
    let used = private(proc, "self/status")?;
    LIMIT.store(used.saturating_add(bytes), Relaxed);
    ALLOWANCE.store(bytes, Relaxed);
    python::guard_allocators::<Allowance>();
    Ok(())
}

struct Allowance;

impl Admission for Allowance {
    fn admits(size: usize, replaced: impl FnOnce() -> usize) -> bool {
        // Racing threads may lose each other's updates. The next measurement corrects the count.
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

/// Measures. If there is too little room, releases freed memory that the C library still holds and measures again.
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
    // Without a /proc nothing can be measured, and only the cgroup enforces the limit.
    let Ok(used) = private(AT_FDCWD, "/proc/self/status") else {
        return true;
    };
    let limit = LIMIT.load(Relaxed).saturating_add(RESERVED.load(Relaxed));
    let rest = limit.checked_sub(used.saturating_add(bytes));
    // Other memory grows too, so only half of the rest may be allocated without a measurement.
    let unmeasured = rest.map_or(0, |rest| (rest / 2).max(MIN_UNMEASURED));
    UNMEASURED.store(unmeasured, Relaxed);
    rest.is_some()
}

/// Starts to limit this process, a worker that the supervisor has checked. Earlier, the supervisor would see the file
/// that a measurement opens.
pub fn begin() {
    UNMEASURED.store(ALLOWANCE.load(Relaxed) / 2, Relaxed);
}

/// Python: starts to limit this process.
pub fn limit_objects(_: &Object) -> Result<Object, Raised> {
    begin();
    Ok(Object::none())
}

/// Python: also counts the data of numpy's arrays. `module` is the loaded module with numpy's function table.
pub fn include_arrays(module: &Object) -> Result<Object, Raised> {
    python::guard_arrays::<Allowance>(module);
    Ok(Object::none())
}

/// Python: adds the reserve to the limit. Does not allocate. Returns whether the guest was refused memory.
pub fn begin_report(_: &Object) -> Result<Object, Raised> {
    RESERVED.store(RESERVE, Relaxed);
    Object::truth(REFUSED.load(Relaxed))
}

/// Python: withdraws the reserve. If too little memory is free, the next cell keeps it: that cell may free memory.
pub fn end_report(_: &Object) -> Result<Object, Raised> {
    REFUSED.store(false, Relaxed);
    if RESERVED.load(Relaxed) > 0 && fits(2 * RESERVE) {
        RESERVED.store(0, Relaxed);
    }
    Ok(Object::none())
}
