//! How much memory the interpreter's own objects may have, where a cgroup ends a guest at the whole limit.
//!
//! An object that would not fit raises `MemoryError`, as on a machine without memory left, and the guest goes
//! on. This protects nothing: what is allocated by other means reaches the cgroup's limit.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;

use super::python::{self, Action, Admission, TextFunction};
use sandfork_jail::program::ProcessMemory;
use sandfork_jail::sys::memory::release_free;
use sandfork_jail::sys::procfs::private;

/// Whether workers count what the interpreter allocates.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// What a worker may have beyond its zygote, bytes.
static ALLOWANCE: AtomicU64 = AtomicU64::new(u64::MAX);
/// What it may have in all.
static MOST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Bytes that may be allocated before the process is measured. A zygote is never measured.
static UNMEASURED: AtomicU64 = AtomicU64::new(u64::MAX);
/// The reserve, while a guest's exception is described.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// Bytes for the report of a guest that has used up its memory. They are a part of what lies between the
/// allowance and the whole limit, at least 8 MiB.
const RESERVE: u64 = 4 << 20;

/// Measuring costs about as much as filling this many bytes.
const LEAST_UNMEASURED: u64 = 256 << 10;

/// Prepares to count what workers allocate, if the plan says so.
pub fn prepare(memory: ProcessMemory) {
    if let ProcessMemory::Touched(_) = memory {
        COUNTS.store(true, Relaxed);
    }
}

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
        match UNMEASURED.load(Relaxed).checked_sub(size as u64) {
            Some(rest) => {
                UNMEASURED.store(rest, Relaxed);
                true
            }
            None => fits(size.saturating_sub(replaced()) as u64),
        }
    }
}

/// Measures, and releases what the C library keeps of freed memory before it refuses.
#[cold]
fn fits(bytes: u64) -> bool {
    let errno = Errno::last_raw();
    let fits = has_room(bytes) || {
        release_free();
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

/// In Python: whether workers limit what the interpreter allocates, as `objects` or an empty string.
pub struct CountsObjects;

impl TextFunction for CountsObjects {
    const NAME: &'static CStr = c"counts_objects";

    fn call(_: &str) -> Result<String, String> {
        let counts = COUNTS.load(Relaxed);
        Ok(if counts { "objects" } else { "" }.into())
    }
}

/// In Python: counts the data of numpy's arrays too, once numpy is loaded.
pub struct IncludeArrays;

impl TextFunction for IncludeArrays {
    const NAME: &'static CStr = c"include_arrays";

    fn call(module: &str) -> Result<String, String> {
        if COUNTS.load(Relaxed) {
            python::guard_arrays::<Allowance>(module);
        }
        Ok(String::new())
    }
}

/// In Python: begins to limit this process, a worker that has as much as its zygote.
pub struct LimitObjects;

impl Action for LimitObjects {
    const NAME: &'static CStr = c"limit_objects";

    fn run() {
        UNMEASURED.store(ALLOWANCE.load(Relaxed) / 2, Relaxed);
    }
}

/// In Python: adds the reserve to what objects may have.
pub struct BeginReport;

impl Action for BeginReport {
    const NAME: &'static CStr = c"begin_report";

    fn run() {
        RESERVED.store(RESERVE, Relaxed);
    }
}

/// In Python: takes it back. If there is no room for it, the next cell has it, which may be the one that frees
/// memory.
pub struct EndReport;

impl Action for EndReport {
    const NAME: &'static CStr = c"end_report";

    fn run() {
        if RESERVED.load(Relaxed) > 0 && has_room(2 * RESERVE) {
            RESERVED.store(0, Relaxed);
        }
    }
}
