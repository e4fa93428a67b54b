//! A model of a memory on which restore steps act like the restoring code and the kernel.

use std::collections::BTreeMap;
use std::ops::Range;

use sandfork::internals::snapshot::{Backing, Region};
use sandfork_jail::restore::{LARGEST_BLOB, STEP, WINDOW};
use sandfork_jail::sys::checkpoint::{BUFFER, BUFFER_AT, DATA_AT, header};
use sandfork_jail::sys::pagemap::{MADV_GUARD_INSTALL, MADV_GUARD_REMOVE};

use super::layout::{DESCRIPTOR, Layout, PAGE};

const READ: u64 = libc::PROT_READ as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;

/// The flag of a step whose fifth argument is the file that was opened.
const FILE_FIFTH: u16 = 2;

/// What a page maps: inode and offset of a file, and whether the mapping is shared.
type Mapped = Option<(u64, u64, bool)>;

/// The content of a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Content {
    /// Zeros, or the content of the file.
    Fresh,
    /// What the process has written.
    Own,
    /// The content of the image at this offset.
    Image(u64),
    /// A guard page, which must not be accessed.
    Guard,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Page {
    mapped: Mapped,
    protection: u64,
    content: Content,
}

#[derive(Debug)]
pub struct Model {
    pages: BTreeMap<u64, Page>,
    blob: u64,
    heap: Range<u64>,
    stack: u64,
    file: Option<u64>,
    /// The image range that was read into the buffer.
    buffer: Range<u64>,
    /// The image offset that the window maps.
    window: Option<u64>,
}

fn pages(range: Range<u64>) -> impl Iterator<Item = u64> {
    (range.start..range.end).step_by(4096)
}

fn mapped(region: &Region, page: u64) -> Mapped {
    match &region.backing {
        Backing::File { inode, offset, .. } => {
            Some((*inode, offset + (page - region.start), region.is_shared))
        }
        _ => None,
    }
}

impl Model {
    pub fn new(target: &Layout, blob: u64) -> Self {
        let regions = target.regions();
        let of = |backing: &Backing| regions.iter().find(|region| region.backing == *backing);
        let mut model = Self {
            pages: BTreeMap::new(),
            blob,
            heap: of(&Backing::Heap).map_or(0..0, |heap| heap.start..heap.end),
            stack: of(&Backing::Stack).map_or(0, |stack| stack.start),
            file: None,
            buffer: 0..0,
            window: None,
        };
        for region in &regions {
            for page in pages(region.start..region.end) {
                let page_of = Page {
                    mapped: mapped(region, page),
                    protection: region.protection.0,
                    content: Content::Fresh,
                };
                model.pages.insert(page, page_of);
            }
        }
        for page in target.pages.iter().cloned().flat_map(pages) {
            model.page(page, 0).content = Content::Own;
        }
        for page in target.guards.iter().cloned().flat_map(pages) {
            model.page(page, 0).content = Content::Guard;
        }
        model
    }

    /// Returns a page that is mapped with at least this protection.
    fn page(&mut self, address: u64, protection: u64) -> &mut Page {
        let page = self.pages.get_mut(&address);
        let page = page.unwrap_or_else(|| panic!("{address:#x} is not mapped"));
        assert_eq!(page.protection & protection, protection, "{address:#x}");
        page
    }

    /// Sets the content of a writable page.
    fn write(&mut self, address: u64, content: Content) {
        let page = self.page(address, WRITE);
        assert_ne!(page.content, Content::Guard, "{address:#x}");
        page.content = content;
    }

    /// Executes the steps of a blob.
    pub fn carry_out(&mut self, bytes: &[u8]) {
        let (head, data) = bytes.split_at(header::LENGTH);
        let field = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        let at = |address: u64| {
            let from_data = address - self.blob - DATA_AT as u64;
            usize::try_from(from_data).expect("the address is in the blob")
        };
        let (first, end) = (
            at(field(head, header::STEPS)),
            at(field(head, header::STEPS_END)),
        );
        let length = usize::try_from(STEP).expect("small");
        let blob = self.blob;
        for step in data[first..end].chunks(length) {
            let kind = u16::from_le_bytes([step[0], step[1]]);
            let flags = u16::from_le_bytes([step[2], step[3]]);
            let call = u32::from_le_bytes([step[4], step[5], step[6], step[7]]);
            let arguments = [0, 1, 2, 3, 4, 5].map(|number| field(step, 8 + 8 * number));
            let name = |address: u64| {
                let from =
                    usize::try_from(address - blob).expect("the address is in the blob") - DATA_AT;
                let name = data[from..].split(|byte| *byte == 0).next();
                String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
            };
            self.step((kind, flags), call.into(), arguments, &name);
        }
    }

    fn step(
        &mut self,
        (kind, flags): (u16, u16),
        call: i64,
        arguments: [u64; 6],
        name: &dyn Fn(u64) -> String,
    ) {
        let [first, second, third, fourth, fifth, sixth] = arguments;
        match (kind, call) {
            (0, libc::SYS_mmap) if fourth & ANONYMOUS == 0 && flags & FILE_FIFTH == 0 => {
                assert_eq!(fifth, u64::from(DESCRIPTOR.unsigned_abs()));
                if first == self.blob + LARGEST_BLOB {
                    assert_eq!((second, third), (WINDOW, READ));
                    self.window = Some(sixth);
                    return;
                }
                self.map(first..first + second, third, fourth | ANONYMOUS, 0);
                self.read(first..first + second, sixth);
            }
            (1, _) => {
                let shown = self.shown(third..third + second);
                for (page, of) in pages(first..first + second).zip(pages(shown)) {
                    self.page(page, READ);
                    self.write(page, Content::Image(of));
                }
            }
            (2, _) => {
                for page in pages(first & !(PAGE - 1)..self.stack) {
                    self.pages.insert(page, fresh(None, READ | WRITE));
                }
            }
            (0, libc::SYS_brk) => {
                let end = first.next_multiple_of(PAGE);
                for page in pages(self.heap.end..end) {
                    self.pages.insert(page, fresh(None, READ | WRITE));
                }
                self.pages
                    .retain(|page, _| !(end..self.heap.end).contains(page));
            }
            (0, libc::SYS_munmap) if first == self.blob + LARGEST_BLOB => {
                assert_eq!(second, WINDOW);
                self.window.take().expect("the window is open");
            }
            (0, libc::SYS_munmap) => self
                .pages
                .retain(|page, _| !(first..first + second).contains(page)),
            (0, libc::SYS_mremap) => {
                let range = first..first + second;
                assert!(self.is_outside(fifth..fifth + second), "{range:x?}");
                let moved: Vec<Page> = pages(range.clone())
                    .map(|page| *self.page(page, 0))
                    .collect();
                self.pages.retain(|page, _| !range.contains(page));
                self.pages.extend(pages(fifth..fifth + second).zip(moved));
            }
            (0, libc::SYS_arch_prctl) => {}
            (0, libc::SYS_openat) => {
                let digits = name(second)
                    .chars()
                    .filter(char::is_ascii_digit)
                    .collect::<String>();
                self.file = digits.parse().ok();
            }
            (0, libc::SYS_mmap) => self.map(first..first + second, third, fourth, sixth),
            (0, libc::SYS_pread64) => {
                assert_eq!(first, u64::from(DESCRIPTOR.unsigned_abs()));
                self.read(second..second + third, fourth);
            }
            (0, libc::SYS_mprotect) => {
                for page in pages(first..first + second) {
                    self.page(page, 0).protection = third;
                }
            }
            (0, libc::SYS_madvise) => self.advise(first..first + second, third),
            (0, libc::SYS_close) => self.file = None,
            other => panic!("no such step: {other:?}"),
        }
    }

    fn advise(&mut self, range: Range<u64>, advice: u64) {
        for page in pages(range) {
            let page = self.page(page, 0);
            match (i32::try_from(advice), page.content) {
                (Ok(MADV_GUARD_INSTALL), _) => page.content = Content::Guard,
                (Ok(libc::MADV_DONTNEED), Content::Guard) => {}
                (Ok(libc::MADV_DONTNEED), _) | (Ok(MADV_GUARD_REMOVE), Content::Guard) => {
                    page.content = Content::Fresh;
                }
                _ => {}
            }
        }
    }

    /// Returns the image range that the buffer or the window contains at an address.
    fn shown(&self, range: Range<u64>) -> Range<u64> {
        let (buffer, window) = (self.blob + BUFFER_AT as u64, self.blob + LARGEST_BLOB);
        let length = range.end - range.start;
        let start = if range.start == buffer {
            assert!(length <= self.buffer.end - self.buffer.start);
            self.buffer.start
        } else {
            assert!(range.start >= window && range.end <= window + WINDOW);
            self.window.expect("the window is open") + (range.start - window)
        };
        start..start + length
    }

    /// Returns whether the range does not overlap the blob.
    fn is_outside(&self, range: Range<u64>) -> bool {
        range.end <= self.blob || range.start >= self.blob + (256 << 20)
    }

    fn map(&mut self, range: Range<u64>, protection: u64, flags: u64, offset: u64) {
        assert!(self.is_outside(range.clone()), "{range:x?}");
        let is = |flag: i32| flags & u64::from(flag.unsigned_abs()) != 0;
        assert!(is(libc::MAP_FIXED));
        for page in pages(range.clone()) {
            let place = offset + (page - range.start);
            let made = match self.file {
                _ if is(libc::MAP_ANONYMOUS) => fresh(None, protection),
                Some(inode) => fresh(Some((inode, place, is(libc::MAP_SHARED))), protection),
                None => panic!("no file is open"),
            };
            self.pages.insert(page, made);
        }
    }

    fn read(&mut self, range: Range<u64>, offset: u64) {
        let buffer = self.blob + BUFFER_AT as u64;
        if range.start == buffer {
            assert!(range.end <= buffer + BUFFER as u64);
            self.buffer = offset..offset + (range.end - range.start);
            return;
        }
        for page in pages(range.clone()) {
            self.write(page, Content::Image(offset + (page - range.start)));
        }
    }

    /// Checks that the memory equals that of the source.
    pub fn require(&self, source: &Layout) {
        assert_eq!(self.window, None, "the window is still mapped");
        let mut wanted = BTreeMap::new();
        let mut wiped = Vec::new();
        for region in source.regions() {
            for page in pages(region.start..region.end) {
                wanted.insert(page, fresh(mapped(&region, page), region.protection.0));
            }
            if region.advice.is_wiped {
                wiped.push(region.start..region.end);
            }
        }
        let places = (0..).step_by(4096);
        for (page, place) in source.pages.iter().cloned().flat_map(pages).zip(places) {
            wanted.get_mut(&page).expect("the page is mapped").content = Content::Image(place);
        }
        for page in source.guards.iter().cloned().flat_map(pages) {
            wanted.get_mut(&page).expect("the page is mapped").content = Content::Guard;
        }
        let mut found = self.pages.clone();
        for page in wiped.into_iter().flat_map(pages) {
            found.get_mut(&page).expect("the page is mapped").content = Content::Fresh;
        }
        // The page that keeps a closed heap from growing belongs to neither.
        let (closed, none) = (self.heap.end, fresh(None, 0));
        found.retain(|page, has| *page != closed || *has != none || wanted.contains_key(page));
        // Pages below the other stack are irrelevant.
        found.retain(|page, _| {
            *page < self.stack || *page >= STACK_END || wanted.contains_key(page)
        });
        for (page, wanted) in &wanted {
            assert_eq!(found.get(page), Some(wanted), "{page:#x}");
        }
        assert_eq!(found.len(), wanted.len(), "something else is mapped");
    }
}

const STACK_END: u64 = 0x3000_0000;

const fn fresh(mapped: Mapped, protection: u64) -> Page {
    Page {
        mapped,
        protection,
        content: Content::Fresh,
    }
}
