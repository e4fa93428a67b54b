//! Generates a memory layout from choices.

use std::fmt::Write as _;
use std::ops::Range;

use sandfork::internals::snapshot::{Region, in_order, parse, split};

use crate::source::Source;

/// The descriptor of the image.
pub const DESCRIPTOR: i32 = 9;

pub const PAGE: u64 = 4096;
/// The addresses of the mappings, the heap, the end of the stack, and the kernel's pages.
pub const BASE: u64 = 0x1000_0000;
const HEAP: u64 = 0x2000_0000;
const STACK: u64 = 0x3000_0000;
const KERNEL: u64 = 0x4000_0000;

/// The number of pages over which the mappings are spread.
const PAGES: u64 = 200;

const IMAGE: &str = "/memfd:sandfork-memory (deleted)";

/// A memory as `/proc/PID/smaps` describes it, and the pages that the process has modified.
#[derive(Debug, Default)]
pub struct Layout {
    text: String,
    pub pages: Vec<Range<u64>>,
    pub guards: Vec<Range<u64>>,
}

/// The kinds of mappings that can occur.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Source,
    Target,
}

impl Layout {
    pub fn of_source(choices: &mut Source) -> Self {
        Self::made(choices, Of::Source)
    }

    pub fn of_target(choices: &mut Source) -> Self {
        Self::made(choices, Of::Target)
    }

    pub fn regions(&self) -> Vec<Region> {
        parse(self.text.as_bytes()).expect("well-formed text")
    }

    fn made(choices: &mut Source, of: Of) -> Self {
        let mut made = Self::default();
        let mut at = 0;
        while at < PAGES && !choices.is_empty() {
            at += u64::from(choices.byte() % 16);
            let length = 1 + u64::from(choices.byte() % 40);
            made.mapping(choices, BASE + at * PAGE, length, of);
            at += length;
        }
        let length = 1 + u64::from(choices.byte() % 60);
        made.add(choices, HEAP, length, "rw-p", "0 00:00 0 [heap]", "");
        let length = 1 + u64::from(choices.byte() % 20);
        made.add(
            choices,
            STACK - length * PAGE,
            length,
            "rw-p",
            "0 00:00 0 [stack]",
            "",
        );
        let moved = u64::from(choices.byte() == 255) * PAGE;
        made.line(KERNEL + moved, 2, "r-xp", "0 00:00 0 [vdso]");
        made
    }

    fn mapping(&mut self, choices: &mut Source, start: u64, length: u64, of: Of) {
        let protections = ["rw-p", "r--p", "r-xp", "---p", "rwxp", "-w-p"];
        let protection = protections[usize::from(choices.byte()) % protections.len()];
        let kind = choices.byte();
        // Mappings of a file with the same offset are equal in both memories.
        let offset = start + u64::from(kind >> 6) * PAGE;
        let inode = 7 + (kind >> 4 & 1);
        let file = format!("{offset:x} fe:00 {inode} /usr/lib/{inode}.so");
        match kind % 8 {
            0 | 1 => self.add(choices, start, length, protection, &file, ""),
            2 => self.line(start, length, &format!("{}--s", &protection[..1]), &file),
            3 if of == Of::Source => {
                self.line(start, length, "rw-p", &format!("{start:x} 00:01 9 {IMAGE}"));
                self.push(start..start + length * PAGE);
            }
            4 if of == Of::Source => {
                self.line(start, length, protection, "0 00:00 0 ");
                self.text.push_str("VmFlags: rd wr wf\n");
            }
            5 => self.add(
                choices,
                start,
                length,
                protection,
                "0 00:00 0 ",
                "VmFlags: rd nr hg\n",
            ),
            _ => self.add(choices, start, length, protection, "0 00:00 0 ", ""),
        }
    }

    /// Adds a mapping, some pages of which the process has modified.
    fn add(
        &mut self,
        choices: &mut Source,
        start: u64,
        length: u64,
        protection: &str,
        what: &str,
        flags: &str,
    ) {
        self.line(start, length, protection, what);
        self.text.push_str(flags);
        let mut at = u64::from(choices.byte() % 8);
        while at < length {
            let end = length.min(at + 1 + u64::from(choices.byte() % 32));
            self.push(start + at * PAGE..start + end * PAGE);
            at = end + u64::from(choices.byte() % 8);
        }
    }

    /// Turns some pages into guard pages.
    pub fn guard(&mut self, choices: &mut Source) {
        let mut chosen = Vec::new();
        for _ in 0..choices.byte() % 8 {
            let bases = [BASE, HEAP, STACK - 20 * PAGE];
            let base = bases[usize::from(choices.byte()) % bases.len()];
            let start = base + u64::from(choices.byte()) * PAGE;
            chosen.push(start..start + (1 + u64::from(choices.byte() % 16)) * PAGE);
        }
        let chosen = in_order(chosen);
        let can_be =
            |region: &Region| !region.is_shared && !region.is_kernel() && !region.advice.is_wiped;
        for region in self.regions().iter().filter(|region| can_be(region)) {
            let of = split(&(region.start..region.end), &chosen).into_iter();
            self.guards
                .extend(of.filter_map(|(range, is_guard)| is_guard.then_some(range)));
        }
        let pages = self.pages.iter().flat_map(|range| split(range, &chosen));
        self.pages = pages
            .filter_map(|(range, is_guard)| (!is_guard).then_some(range))
            .collect();
    }

    fn line(&mut self, start: u64, length: u64, protection: &str, what: &str) {
        let end = start + length * PAGE;
        writeln!(self.text, "{start:x}-{end:x} {protection} {what}").expect("a text has room");
    }

    fn push(&mut self, pages: Range<u64>) {
        match self.pages.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => self.pages.push(pages),
        }
    }
}
