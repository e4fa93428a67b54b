//! The answers to a guest's calls that describe the machine. The kernel would describe the host.

use std::fs::OpenOptions;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use crate::host::{Tracing, tracing};
use crate::policy::Limits;
use sandfork_jail::machine_files::LONGEST_SESSION;
use sandfork_jail::sys::seccomp::{Asked, Reply, waits};

/// Answers a call that describes the machine; `None` if it is another one.
pub fn reply(listener: BorrowedFd, call: Asked, limits: &Limits) -> Option<Reply> {
    let [first, second, third, ..] = call.arguments;
    let (address, bytes, value) = match libc::c_long::from(call.call) {
        libc::SYS_sysinfo => (first, words(&sysinfo(limits)), 0),
        libc::SYS_sched_getaffinity => {
            let mask = words(&processors(limits));
            let length = i64::try_from(mask.len()).unwrap_or(i64::MAX);
            // The kernel reads 32 bits of the length of the caller's memory.
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
        // As without a listener: a refusal would end programs that only count processors.
        Err(Errno::EPERM) if tracing() > Tracing::Allowed => Reply::Continue,
        Err(errno) => Reply::Error(errno),
    })
}

/// `struct sysinfo` of linux/sysinfo.h, with a unit of one byte.
fn sysinfo(limits: &Limits) -> [u64; 14] {
    let (total, free) = (limits.memory(), limits.memory_allowance());
    // A constant, as in `/proc/uptime`.
    let uptime = LONGEST_SESSION.as_secs();
    // After load, shared memory, buffers and swap comes the number of processes.
    [uptime, 0, 0, 0, total, free, 0, 0, 0, 0, 1, 0, 0, 1]
}

/// A mask of so many processors as the limit on them, rounded up.
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

/// Writes to the memory of the calling thread. The open file belongs to this memory, even if the kernel gives the
/// thread's number to another thread later. The thread still waits once the file is open.
fn write(listener: BorrowedFd, call: Asked, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let path = format!("/proc/{}/mem", call.thread);
    // Refused for a program that the user may run and not read, and where Yama forbids to trace.
    let memory = OpenOptions::new().write(true).open(path);
    let memory = memory.map_err(|_| Errno::EPERM)?;
    if !waits(listener, call.id) {
        return Err(Errno::EINTR);
    }
    // As the kernel answers for memory that the caller does not have.
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
    fn a_mask_has_a_bit_for_each_processor_begun() {
        assert_eq!(processors(&limits("0.5")), [1]);
        assert_eq!(processors(&limits("1.0")), [1]);
        assert_eq!(processors(&limits("2.5")), [7]);
    }
}
