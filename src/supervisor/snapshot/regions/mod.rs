//! The mappings of a process, from the text of `/proc/PID/maps` and `/proc/PID/smaps` (proc(5)). Pure but for its reader.
//!
//! Names in them are chosen by the guest. They are the last field of a line, and the kernel writes a line feed in
//! them as `\012`.

use std::io::BufRead;

use serde::{Deserialize, Serialize};

use super::refusal::{Doing, SnapshotRefusal};
use sandfork_jail::restore::Protection;

/// The most mappings of a session. A program has some hundreds.
pub const MOST_REGIONS: usize = 16_384;

/// The most bytes of a file that lists so many.
pub const MOST_TEXT: u64 = 32 << 20;

/// A mapping.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// What may be done with it.
    pub protection: Protection,
    /// Whether writes to it are seen outside of the process.
    pub is_shared: bool,
    /// What it maps.
    pub backing: Backing,
    /// What `smaps` says of it.
    pub advice: Advice,
    /// Whether it is a private mapping of an earlier copy's image, or of bytes that the caller passed. Each of its pages
    /// counts, even one that the process has not used yet.
    pub is_image: bool,
}

/// What a mapping maps.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Backing {
    /// Memory of the process alone.
    Anonymous,
    /// The heap that brk(2) extends.
    Heap,
    /// The main thread's stack.
    Stack,
    /// What the kernel maps into every process, by its name.
    Kernel(String),
    /// A file.
    File {
        /// The path by which it was opened.
        path: String,
        /// The device, as the kernel writes it.
        device: String,
        /// The inode's number.
        inode: u64,
        /// Where the mapping starts in the file.
        offset: u64,
    },
}

/// How the kernel treats the memory of a mapping.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// `MAP_NORESERVE` and `MAP_GROWSDOWN`, which the main thread's stack has.
    pub flags: i32,
    /// `MADV_HUGEPAGE` or `MADV_NOHUGEPAGE`.
    pub huge: Option<i32>,
    /// Its contents are not for copies: `MADV_WIPEONFORK`, or the kernel's own state of getrandom(2).
    pub is_wiped: bool,
    /// It is a shadow stack.
    pub is_shadow_stack: bool,
}

/// The names of files that are memory to a copy: of an image, and of bytes that the Python package or the supervisor
/// passed. A guest may give them to a file of its own, whose contents are then copied.
const IMAGES: [&[u8]; 3] = [
    b"/memfd:sandfork-memory (deleted)",
    b"/memfd:sandfork (deleted)",
    b"/memfd:sandfork-value (deleted)",
];

/// The names of what the kernel maps (arch_vma_name).
const OF_KERNEL: [&[u8]; 5] = [
    b"[vdso]",
    b"[vvar]",
    b"[vvar_vclock]",
    b"[vsyscall]",
    b"[uprobes]",
];

impl Region {
    /// Whether it is memory of the process alone.
    pub fn is_anonymous(&self) -> bool {
        matches!(
            self.backing,
            Backing::Anonymous | Backing::Heap | Backing::Stack
        )
    }

    /// Whether it is the kernel's.
    pub fn is_kernel(&self) -> bool {
        matches!(self.backing, Backing::Kernel(_))
    }

    /// Whether the other process has the same at the addresses that both have.
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

/// Parses either file, line by line: that of a guest with many mappings has megabytes. A line that is not understood is
/// refused: nothing of a process is left out.
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
            // A measurement of the mapping.
        } else {
            if regions.len() == MOST_REGIONS {
                return Err(SnapshotRefusal::Fragmented(MOST_REGIONS));
            }
            let region = Region::parse(line).ok_or_else(|| {
                let what = format!("what is mapped as `{}` is of no known kind", name_of(line));
                SnapshotRefusal::Mapping(what)
            })?;
            regions.push(region);
        }
        next.clear();
    }
    Ok(regions)
}

/// Recognises the parts of a heap that an earlier copy shares with its image: the kernel does not name them. The heap
/// starts where the kernel says in `stat`, and ends where the process says.
pub fn name_heap(regions: &mut [Region], of_process: &str, program_break: u64) {
    /// The number of the field (proc(5)).
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

/// The mapping at an address. The mappings are in order.
pub fn at(regions: &[Region], address: u64) -> Option<&Region> {
    let next = regions.partition_point(|region| region.end <= address);
    regions.get(next).filter(|region| region.start <= address)
}

/// Refuses mappings that a copy cannot have.
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
