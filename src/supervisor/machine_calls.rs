//! Replies to system calls that describe the machine, for which the kernel would describe the host.

use std::fs::OpenOptions;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use crate::host::{Tracing, tracing};
use crate::policy::Limits;
use sandfork_jail::machine_files::LONGEST_SESSION;
use sandfork_jail::sys::seccomp::{Notification, Reply, is_valid};

/// Returns the reply to a call that describes the machine; `None` for any other call.
pub fn reply(listener: BorrowedFd, call: Notification, limits: &Limits) -> Option<Reply> {
    let [first, second, third, ..] = call.arguments;
    let (address, bytes, value) = match libc::c_long::from(call.call) {
        libc::SYS_sysinfo => (first, words(&sysinfo(limits)), 0),
        libc::SYS_sched_getaffinity => {
            let mask = words(&processors(limits));
            let length = i64::try_from(mask.len()).unwrap_or(i64::MAX);
            // The kernel uses only the low 32 bits of the length.
            let room = second & u64::from(u32::MAX);
            if room < mask.len() as u64 || room % 8 != 0 {
                return Some(Reply::Error(Errno::EINVAL));
            }
            (third, mask, length)
        }
        _ => return None,
    };
    Some(match write(listener, call, address, &bytes) {
        Ok(()) => Reply::Value(value),
        // Let the kernel answer, as it does without a listener: an error would end programs that only count processors.
        Err(Errno::EPERM) if tracing() > Tracing::Allowed => Reply::Continue,
        Err(errno) => Reply::Error(errno),
    })
}

/// Encodes `struct sysinfo` of linux/sysinfo.h, with a memory unit of one byte.
fn sysinfo(limits: &Limits) -> [u64; 14] {
    let (total, free) = (limits.memory(), limits.memory_allowance());
    // A constant, as in `/proc/uptime`.
    let uptime = LONGEST_SESSION.as_secs();
    // After load, shared memory, buffers and swap comes the number of processes.
    [uptime, 0, 0, 0, total, free, 0, 0, 0, 0, 1, 0, 0, 1]
}

/// Returns a mask with as many processors as `limits.cores`, rounded up.
fn processors(limits: &Limits) -> Vec<u64> {
    let count = limits.processors();
    let word = |index| match count.saturating_sub(64 * index) {
        bits @ 0..64 => (1_u64 << bits) - 1,
        _ => u64::MAX,
    };
    (0..count.div_ceil(64)).map(word).collect()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Writes to the memory of the calling thread. The open file refers to this memory even if the kernel reuses the
/// thread's id later, and once the file is open the thread is verified to be still waiting.
fn write(
    listener: BorrowedFd,
    call: Notification,
    address: u64,
    bytes: &[u8],
) -> Result<(), Errno> {
    let path = format!("/proc/{}/mem", call.thread);
    // Refused for a program that the user may execute but not read, and where Yama restricts tracing.
    let memory = OpenOptions::new().write(true).open(path);
    let memory = memory.map_err(|_| Errno::EPERM)?;
    if !is_valid(listener, call.id) {
        return Err(Errno::EINTR);
    }
    // The kernel's own error for memory that the caller has not mapped.
    memory
        .write_all_at(bytes, address)
        .map_err(|_| Errno::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::sample;

    fn limits(cores: &str) -> Limits {
        sample(&format!("limits.cores = {cores}"))
            .supervision
            .limits
    }

    #[test]
    fn affinity_mask_rounds_processors_up() {
        assert_eq!(processors(&limits("0.5")), [1]);
        assert_eq!(processors(&limits("1.0")), [1]);
        assert_eq!(processors(&limits("2.5")), [7]);
    }
}
