//! Reads and changes this process's memory map (proc(5), `/proc/self/maps`; mprotect(2); madvise(2); munmap(2)).

use std::ops::Range;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

use super::process::{SingleThreaded, exit_now};
use super::{check, procfs};

/// Lets children of this process start with the page tables of the program text mapped so far.
///
/// fork(2) copies the page tables of a mapping only if the mapping has an anonymous page. A child must fault in an
/// untouched file mapping again. This function therefore writes one byte of each read-only file mapping with its
/// existing value. It does not populate whole mappings: each fork copies, and each exit removes, every present page,
/// used or not. Mappings made later are not worth the effort.
///
/// Returns the number of mappings prepared. A mapping that the system does not let this process write to (a hardened
/// kernel's rule against text relocations) is left unchanged, which costs only speed.
pub fn share_page_tables(proc: BorrowedFd) -> Result<usize, Errno> {
    let maps = procfs::read(proc, "self/maps")?;
    Ok(maps
        .lines()
        .filter_map(Mapping::parse)
        .filter(|mapping| mapping.is_text() && touch_first_page(mapping).is_ok())
        .count())
}

/// Collapses this process's anonymous memory into huge pages where it fills them.
///
/// fork(2) copies one entry for a huge page instead of 512, and a child that writes to it still copies only the small
/// page that it writes to. Returns the number of bytes requested. Memory that the kernel does not collapse (before
/// Linux 6.1, or for lack of huge pages) costs only speed.
pub fn collapse(proc: BorrowedFd) -> Result<usize, Errno> {
    const MADV_COLLAPSE: libc::c_int = 25;
    let maps = procfs::read(proc, "self/maps")?;
    let anonymous = maps
        .lines()
        .filter_map(Mapping::parse)
        .filter(Mapping::is_anonymous);
    Ok(anonymous
        .filter_map(|mapping| mapping.huge_pages())
        .map(|(start, length)| {
            // SAFETY: the range lies within one mapping of this process, which has one thread, so the mapping cannot be
            // unmapped meanwhile. The contents of the memory do not change.
            unsafe { libc::madvise(start as *mut libc::c_void, length, MADV_COLLAPSE) };
            length
        })
        .sum())
}

/// Releases freed memory that the C library still holds (malloc_trim(3)).
///
/// On its own the library releases only memory above the last object in use.
pub fn trim() {
    // SAFETY: takes no pointer and is thread-safe.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Limits the freed memory that the C library retains to its initial setting: 128 KiB above the last object of each
/// arena.
///
/// By default the threshold grows to twice the largest block that was ever freed, up to 64 MiB, in each of up to eight
/// arenas per processor (`M_TRIM_THRESHOLD` of mallopt(3)). The size of guests' output would determine it.
pub fn keep_little() {
    // SAFETY: takes no pointer and is thread-safe.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10)
    };
}

/// Returns whether children of this process, which has one thread, would share memory with it that they could write to.
///
/// `maps` does not show whether a shared mapping's file was opened for writing, but mprotect(2) makes a mapping
/// writable only if it was (`EACCES`). `smaps` shows the difference too, but the kernel counts every page for it.
pub fn shares(proc: BorrowedFd) -> Result<bool, Errno> {
    let maps = procfs::read(proc, "self/maps")?;
    for mapping in maps.lines().filter_map(Mapping::parse) {
        if mapping.permissions.ends_with('s') && mapping.can_be_written()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The size below which a waiting process keeps an anonymous mapping: the stack of an init is such a mapping. Python's
/// own allocations are in larger mappings and in the heap.
const MAX_KEPT: usize = 128 << 10;

/// Frees the memory of a process that only waits from now on, and exits with the status that `wait` returns.
///
/// A forked child shares these pages and would have to copy each one that it writes to. `wait` must neither allocate
/// nor use memory that was allocated before: the process would die of SIGSEGV.
pub fn wait_without_memory(
    _single: &SingleThreaded,
    proc: BorrowedFd,
    wait: impl FnOnce() -> libc::c_int,
) -> ! {
    // Block SIGINT, because Python's handler is unmapped together with its code. If that fails or the map cannot be
    // read, the process keeps its memory.
    let mut handled = SigSet::empty();
    handled.add(Signal::SIGINT);
    // On the stack, which stays mapped. Mappings that exceed the array stay too.
    let mut unneeded = [(0, 0); 256];
    _ = handled
        .thread_block()
        .and_then(|()| find_unneeded(proc, &mut unneeded));
    for (start, length) in unneeded.into_iter().take_while(|(_, length)| *length > 0) {
        // SAFETY: the process has one thread, as the token proves, and it never leaves this function. `find_unneeded`
        // excludes the code that still runs, and its data. Any other access faults, because no new mapping is created.
        unsafe { libc::munmap(start as *mut libc::c_void, length) };
    }
    exit_now(wait())
}

/// Finds the mappings that belong neither to this thread's stack nor to this library, the C library or the dynamic
/// linker.
fn find_unneeded(proc: BorrowedFd, unneeded: &mut [(usize, usize)]) -> Result<(), Errno> {
    let maps = procfs::read(proc, "self/maps")?;
    let on_the_stack = 0_u8;
    // SAFETY: getauxval takes an integer, and __errno_location takes nothing.
    let (linker, of_thread) = unsafe { (libc::getauxval(libc::AT_BASE), libc::__errno_location()) };
    let used = [
        (&raw const on_the_stack).addr(),
        of_thread.addr(),
        find_unneeded as *const () as usize,
        libc::waitid as *const () as usize,
        usize::try_from(linker).unwrap_or(0),
    ];
    let mappings = || maps.lines().filter_map(Mapping::parse);
    let is_used = |mapping: &Mapping| used.iter().any(|address| mapping.contains(*address));
    let files: Vec<&str> = mappings()
        .filter(|mapping| mapping.is_file() && is_used(mapping))
        .map(|mapping| mapping.path)
        .collect();
    let mut places = unneeded.iter_mut();
    let mut data_end = 0;
    for mapping in mappings() {
        let is_kept = is_used(&mapping)
            || match mapping.path {
                // The zero-initialised data (.bss) of a file directly follows the rest of its data.
                "" => mapping.length < MAX_KEPT || mapping.start == data_end,
                "[heap]" => false,
                // Mappings without a file path are the kernel's.
                path => !mapping.is_file() || files.contains(&path),
            };
        if is_kept && mapping.is_file() {
            data_end = mapping.start + mapping.length;
        }
        if !is_kept && let Some(place) = places.next() {
            *place = (mapping.start, mapping.length);
        }
    }
    Ok(())
}

/// The size of a huge page, which one page-table page maps, on x86-64 and on aarch64 with 4 KiB pages. On other systems
/// only the ranges differ a little.
const HUGE_PAGE: usize = 2 << 20;

/// A line of `/proc/PID/maps`.
pub(super) struct Mapping<'a> {
    start: usize,
    length: usize,
    permissions: &'a str,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?;
        let path = fields.nth(3).unwrap_or("");
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        Some(Self {
            start,
            length: end - start,
            permissions,
            path,
        })
    }

    fn contains(&self, address: usize) -> bool {
        (self.start..self.start + self.length).contains(&address)
    }

    fn is_file(&self) -> bool {
        self.path.starts_with('/')
    }

    /// Returns whether this is a private, read-only mapping of a file.
    fn is_text(&self) -> bool {
        self.is_file() && matches!(self.permissions, "r-xp" | "r--p")
    }

    fn can_be_written(&self) -> Result<bool, Errno> {
        let protection = self.protection();
        match self.protect(protection | libc::PROT_WRITE) {
            Err(Errno::EACCES) => Ok(false),
            other => other.and_then(|()| self.protect(protection)).map(|()| true),
        }
    }

    /// Returns the protection of the mapping.
    fn protection(&self) -> libc::c_int {
        let access = [
            ('r', libc::PROT_READ),
            ('w', libc::PROT_WRITE),
            ('x', libc::PROT_EXEC),
        ];
        let given = access
            .into_iter()
            .filter(|(letter, _)| self.permissions.contains(*letter));
        given.fold(libc::PROT_NONE, |all, (_, one)| all | one)
    }

    /// Changes the protection to a superset of the current one, or back.
    fn protect(&self, protection: libc::c_int) -> Result<(), Errno> {
        // SAFETY: the range is one whole mapping of this process, which has one thread, so the mapping cannot be
        // unmapped meanwhile. No access that is allowed now is removed.
        let changed =
            unsafe { libc::mprotect(self.start as *mut libc::c_void, self.length, protection) };
        check(libc::c_long::from(changed)).map(drop)
    }

    /// Returns whether this is a private writable mapping.
    pub(super) fn is_written_privately(&self) -> bool {
        matches!(self.permissions, "rw-p" | "rwxp")
    }

    /// Returns the parts of the mapping that huge pages cannot cover.
    pub(super) fn outside_huge_pages(&self) -> [Range<usize>; 2] {
        let end = self.start + self.length;
        let (start, length) = self.huge_pages().unwrap_or((end, 0));
        [self.start..start, start + length..end]
    }

    fn is_anonymous(&self) -> bool {
        matches!(self.path, "" | "[heap]") && self.permissions == "rw-p"
    }

    /// Returns the part of the mapping that whole huge pages can cover, as start and length.
    fn huge_pages(&self) -> Option<(usize, usize)> {
        let start = self.start.next_multiple_of(HUGE_PAGE);
        let end = (self.start + self.length) / HUGE_PAGE * HUGE_PAGE;
        (end > start).then(|| (start, end - start))
    }
}

/// Writes one byte of a mapping with its existing value, into a private copy of its page.
fn touch_first_page(text: &Mapping) -> Result<(), Errno> {
    let protection = text.protection();
    text.protect(protection | libc::PROT_WRITE)?;
    let byte = text.start as *mut u8;
    // SAFETY: `byte` is the first byte of a mapping that is readable and writable now. This process has one thread, so
    // the mapping cannot be unmapped meanwhile.
    unsafe { byte.write_volatile(byte.read_volatile()) };
    text.protect(protection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_blocks_do_not_raise_the_trim_threshold() {
        keep_little();
        drop(vec![1_u8; 8 << 20]);
        // Each block still has its own mapping, after a header of 16 bytes, so it is unmapped as soon as it is freed.
        let blocks = [0; 4].map(|_| vec![1_u8; 1 << 20]);
        let offset = |block: &Vec<u8>| block.as_ptr().addr() % 4096;
        assert_eq!(blocks.each_ref().map(offset), [16; 4]);
    }

    #[test]
    fn mappings_are_classified() {
        let parse = |line| Mapping::parse(line).expect("a line of maps");
        let text = parse("0041f000-006d2000 r-xp 0001f000 fe:00 1234    /usr/bin/python3.11");
        assert!(text.is_text() && !text.is_anonymous());
        let heap = parse("2252f000-22647000 rw-p 00000000 00:00 0       [heap]");
        assert!(heap.is_anonymous() && heap.huge_pages().is_none());
        let arena = parse("7f82f9b00000-7f82fa100000 rw-p 00000000 00:00 0 ");
        assert!(arena.is_anonymous());
        assert_eq!(arena.huge_pages(), Some((0x7f82_f9c0_0000, 0x40_0000)));
        let outside = [
            0x7f82_f9b0_0000..0x7f82_f9c0_0000,
            0x7f82_fa00_0000..0x7f82_fa10_0000,
        ];
        assert_eq!(arena.outside_huge_pages(), outside);
        let whole = [0x2252_f000..0x2264_7000, 0x2264_7000..0x2264_7000];
        assert_eq!(heap.outside_huge_pages(), whole);
        assert!(arena.is_written_privately() && !text.is_written_privately());
        let vdso = parse("7ffc8a9fe000-7ffc8aa00000 r-xp 00000000 00:00 0       [vdso]");
        assert!(!vdso.is_text() && !vdso.is_anonymous());
    }
}
