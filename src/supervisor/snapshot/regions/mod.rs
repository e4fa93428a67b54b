//! Parses the mappings of a process from `/proc/PID/maps` and `/proc/PID/smaps` (proc(5)). Pure, apart from its reader.
//!
//! The guest chooses the names of mappings. A name is the last field of its line, and the kernel escapes a line feed in
//! it as `\012`.

use std::io::BufRead;

use serde::{Deserialize, Serialize};

use super::refusal::{Doing, SnapshotRefusal};
use sandfork_jail::restore::Protection;

/// The maximum number of mappings of a session. A typical program has a few hundred.
pub const MAX_REGIONS: usize = 16_384;

/// The maximum length in bytes of a file that lists so many mappings.
pub const MAX_TEXT: u64 = 32 << 20;

/// A mapping.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The end address, exclusive.
    pub end: u64,
    /// The access that the mapping allows.
    pub protection: Protection,
    /// Whether the mapping is `MAP_SHARED`.
    pub is_shared: bool,
    /// The mapped object.
    pub backing: Backing,
    /// The flags from `smaps`.
    pub advice: Advice,
    /// Whether it is a private mapping of an earlier image, or of bytes that the caller passed. All of its pages are
    /// copied, even those that the process has not touched.
    pub is_image: bool,
}

/// The object that a mapping maps.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Backing {
    /// Private memory.
    Anonymous,
    /// The heap that brk(2) extends.
    Heap,
    /// The main thread's stack.
    Stack,
    /// A mapping that the kernel adds to every process. Holds its name.
    Kernel(String),
    /// A file.
    File {
        /// The path by which it was opened.
        path: String,
        /// The device as `major:minor` in hexadecimal, as the kernel writes it.
        device: String,
        /// The inode number.
        inode: u64,
        /// The offset of the mapping in the file.
        offset: u64,
    },
}

/// Flags that madvise(2) or mmap(2) set on a mapping.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// `MAP_NORESERVE` and `MAP_GROWSDOWN`, which the main thread's stack has.
    pub flags: i32,
    /// `MADV_HUGEPAGE` or `MADV_NOHUGEPAGE`.
    pub huge: Option<i32>,
    /// The contents must not be copied: `MADV_WIPEONFORK`, or the kernel's own getrandom(2) state.
    pub is_wiped: bool,
    /// Whether it is a shadow stack.
    pub is_shadow_stack: bool,
}

/// The names of memory files whose private mappings are copied like anonymous memory: images, and bytes that the Python
/// package or the supervisor passed. A guest may use these names for its own files, which are then copied too.
const IMAGES: [&[u8]; 3] = [
    b"/memfd:sandfork-memory (deleted)",
    b"/memfd:sandfork (deleted)",
    b"/memfd:sandfork-value (deleted)",
];

/// The names of kernel mappings (`arch_vma_name` in the kernel).
const OF_KERNEL: [&[u8]; 5] = [
    b"[vdso]",
    b"[vvar]",
    b"[vvar_vclock]",
    b"[vsyscall]",
    b"[uprobes]",
];

impl Region {
    /// Whether the mapping is private memory without a file.
    pub fn is_anonymous(&self) -> bool {
        matches!(
            self.backing,
            Backing::Anonymous | Backing::Heap | Backing::Stack
        )
    }

    /// Whether the kernel added the mapping.
    pub fn is_kernel(&self) -> bool {
        matches!(self.backing, Backing::Kernel(_))
    }

    /// Whether both mappings show the same object at the addresses that they share.
    pub fn is_same(&self, other: &Self) -> bool {
        let from = |region: &Self, offset: u64| offset.wrapping_sub(region.start);
        match (&self.backing, &other.backing) {
            (
                Backing::File {
                    device,
                    inode,
                    offset,
                    ..
                },
                Backing::File {
                    device: its_device,
                    inode: its_inode,
                    offset: its_offset,
                    ..
                },
            ) => {
                let same_file =
                    (device, inode, self.is_shared) == (its_device, its_inode, other.is_shared);
                same_file && from(self, *offset) == from(other, *its_offset)
            }
            _ => self.is_anonymous() && other.is_anonymous(),
        }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let start = rest.iter().position(|byte| *byte != b' ')?;
            let from = &rest[start..];
            let end = from
                .iter()
                .position(|byte| *byte == b' ')
                .unwrap_or(from.len());
            rest = &from[end..];
            std::str::from_utf8(&from[..end]).ok()
        };
        let (start, end) = field()?.split_once('-')?;
        let permissions = field()?.as_bytes();
        let offset = u64::from_str_radix(field()?, 16).ok()?;
        let device = field()?.to_owned();
        let inode = field()?.parse().ok()?;
        let name = rest.trim_ascii_start();
        let [read, write, execute, sharing] = permissions.try_into().ok()?;
        let bit = |letter: u8, wanted: u8, bit: i32| {
            if letter == wanted {
                bit.unsigned_abs().into()
            } else {
                0_u64
            }
        };
        let protection = bit(read, b'r', libc::PROT_READ)
            | bit(write, b'w', libc::PROT_WRITE)
            | bit(execute, b'x', libc::PROT_EXEC);
        let (start, end) = (
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        let is_image = IMAGES.contains(&name) && sharing == b'p';
        let backing = match name {
            _ if is_image => Backing::Anonymous,
            b"[heap]" => Backing::Heap,
            b"[stack]" => Backing::Stack,
            name if OF_KERNEL.contains(&name) => {
                Backing::Kernel(String::from_utf8(name.to_vec()).ok()?)
            }
            name if name.starts_with(b"/") => Backing::File {
                path: String::from_utf8(name.to_vec()).ok()?,
                device,
                inode,
                offset,
            },
            name if inode == 0 && (name.is_empty() || name.starts_with(b"[anon:")) => {
                Backing::Anonymous
            }
            _ => return None,
        };
        (start < end).then_some(Self {
            start,
            end,
            protection: Protection(protection),
            is_shared: sharing == b's',
            backing,
            advice: Advice::default(),
            is_image,
        })
    }
}

impl Advice {
    fn parse(flags: &str) -> Self {
        let mut advice = Self::default();
        for flag in flags.split_ascii_whitespace() {
            match flag {
                "nr" => advice.flags |= libc::MAP_NORESERVE,
                "hg" => advice.huge = Some(libc::MADV_HUGEPAGE),
                "nh" => advice.huge = Some(libc::MADV_NOHUGEPAGE),
                "gd" => advice.flags |= libc::MAP_GROWSDOWN,
                "wf" | "dp" => advice.is_wiped = true,
                "ss" => advice.is_shadow_stack = true,
                _ => {}
            }
        }
        advice
    }
}

/// Parses either file line by line, because that of a guest with many mappings has megabytes. An unknown line is an
/// error, so that no mapping is left out.
pub fn parse(mut text: impl BufRead) -> Result<Vec<Region>, SnapshotRefusal> {
    let mut regions: Vec<Region> = Vec::new();
    let mut next = Vec::new();
    let mut read = |line: &mut _| text.read_until(b'\n', line).doing("read its mappings");
    while read(&mut next)? > 0 {
        let line = next.strip_suffix(b"\n").unwrap_or(&next);
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            let flags = std::str::from_utf8(flags).unwrap_or_default();
            if let Some(last) = regions.last_mut() {
                last.advice = Advice::parse(flags);
            }
        } else if line.first().is_none_or(u8::is_ascii_uppercase) {
            // A measurement of the mapping, such as `Rss:`.
        } else {
            if regions.len() == MAX_REGIONS {
                return Err(SnapshotRefusal::Fragmented(MAX_REGIONS));
            }
            let region = Region::parse(line).ok_or_else(|| {
                let what = format!("the mapping `{}` is of an unknown kind", name_of(line));
                SnapshotRefusal::Mapping(what)
            })?;
            regions.push(region);
        }
        next.clear();
    }
    Ok(regions)
}

/// Marks the parts of the heap that are mapped from an image, which the kernel does not label. The heap starts at the
/// address in `stat` and ends at the program break that the worker reported.
pub fn name_heap(regions: &mut [Region], of_process: &str, program_break: u64) {
    /// The number of the field `start_brk` (proc(5)).
    const START: usize = 47;
    let fields = of_process.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start = fields.split_ascii_whitespace().nth(START - 3);
    let Some(start) = start
        .and_then(|start| start.parse::<u64>().ok())
        .filter(|start| *start > 0)
    else {
        return;
    };
    let is_heap = |region: &&mut Region| {
        region.is_image && region.start >= start && region.end < program_break.saturating_add(4096)
    };
    for region in regions.iter_mut().filter(is_heap) {
        region.backing = Backing::Heap;
    }
}

fn name_of(line: &[u8]) -> String {
    let name = line
        .splitn(6, |byte| *byte == b' ')
        .last()
        .unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii())
        .chars()
        .take(200)
        .collect()
}

/// Returns the mapping that contains an address. The mappings must be in order.
pub fn at(regions: &[Region], address: u64) -> Option<&Region> {
    let next = regions.partition_point(|region| region.end <= address);
    regions.get(next).filter(|region| region.start <= address)
}

/// Requires that a copy can recreate every mapping.
pub fn require_mappable(regions: &[Region]) -> Result<(), SnapshotRefusal> {
    for region in regions {
        if region.advice.is_shadow_stack {
            let what = "a thread has a shadow stack".into();
            return Err(SnapshotRefusal::Mapping(what));
        }
        let is_written = region.protection.written() == region.protection;
        if let Backing::File { path, .. } = &region.backing
            && region.is_shared
            && is_written
        {
            let what = format!("`{path}` is mapped shared and writable");
            return Err(SnapshotRefusal::Mapping(what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
