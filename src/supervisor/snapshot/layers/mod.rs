//! The memory of an image as a stack of files: its own, and those of earlier images for pages that did not change.
//!
//! An agent that takes a snapshot before each step changes little of a large state per step. A snapshot of a session is
//! therefore based on the session's last snapshot, as long as that is kept, and the first snapshot of a fork on the one
//! that it was forked from.

mod builder;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

pub use self::builder::LayersBuilder;

use super::shelf::Reserved;
use crate::supervisor::descriptors::read_in_pieces;
use sandfork_jail::restore::Place;

/// The maximum number of layers. A worker holds a descriptor of each while it is restored.
const MAX_LAYERS: usize = 8;

/// A file with the contents of pages.
#[derive(Debug)]
pub struct Layer {
    file: File,
    bytes: u64,
    /// The disk space reserved for the file, if it is on disk.
    _on_disk: Option<Reserved>,
}

/// A run of consecutive pages, and its position in a layer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The addresses of the pages.
    pub pages: Range<u64>,
    /// The index of the layer.
    pub layer: usize,
    /// The file offset of the first page.
    pub place: u64,
}

impl Piece {
    /// Returns the pieces of a file that holds these pages in order, without gaps.
    pub fn contiguous(pages: &[Range<u64>]) -> Vec<Self> {
        let mut place = 0;
        let piece = |pages: &Range<u64>| {
            let piece = Self {
                pages: pages.clone(),
                layer: 0,
                place,
            };
            place += piece.length();
            piece
        };
        pages.iter().map(piece).collect()
    }

    fn length(&self) -> u64 {
        self.pages.end - self.pages.start
    }
}

/// The layers of an image, and the position of every page.
#[derive(Clone, Debug)]
pub struct Layers {
    layers: Vec<Arc<Layer>>,
    /// In order of address.
    pieces: Vec<Piece>,
}

impl Layers {
    /// Returns the layers of an image in a single file, which holds these pages without gaps.
    pub fn alone(file: OwnedFd, pages: &[Range<u64>], on_disk: Option<Reserved>) -> Self {
        let pieces = Piece::contiguous(pages);
        Self {
            layers: vec![Arc::new(Layer {
                file: file.into(),
                bytes: pieces.iter().map(Piece::length).sum(),
                _on_disk: on_disk,
            })],
            pieces,
        }
    }

    /// Returns the address ranges of all pieces.
    pub fn pages(&self) -> Vec<Range<u64>> {
        self.pieces
            .iter()
            .map(|piece| piece.pages.clone())
            .collect()
    }

    /// Returns the total length of the pages in bytes.
    pub fn length(&self) -> u64 {
        self.pieces.iter().map(Piece::length).sum()
    }

    /// Returns the files, bottom layer first.
    pub fn files(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.layers.iter().map(|layer| layer.file.as_fd())
    }

    /// Returns the length of the image's own file in bytes.
    pub fn own(&self) -> u64 {
        self.layers.last().map_or(0, |layer| layer.bytes)
    }

    /// Adds each layer with its length to `kept`, keyed by address so that a shared layer counts once.
    pub fn list(&self, kept: &mut BTreeMap<*const Layer, u64>) {
        let files = self.layers.len();
        Base {
            layers: self,
            files,
        }
        .list(kept);
    }

    /// Returns the lookup table for a process that has the files open as `descriptors`.
    pub fn places<'a>(&'a self, descriptors: &'a [RawFd]) -> Places<'a> {
        Places::of(&self.pieces, descriptors)
    }

    /// Returns the layers that a later image may share: all of them, or only the first if there are [`MAX_LAYERS`] or
    /// too little of all is still referenced. `None` if that is also true of the first.
    pub fn base(&self) -> Option<Base<'_>> {
        let all = self.layers.len();
        let most = if all < MAX_LAYERS { all } else { 1 };
        let bases = [most, 1].map(|files| Base {
            layers: self,
            files,
        });
        bases.into_iter().find(Base::is_useful)
    }

    /// Writes the contents of all pages in order of address.
    pub fn write_to(&self, writer: &mut impl Write) -> io::Result<()> {
        let mut pieces = self.pieces.iter();
        pieces.try_for_each(|piece| {
            let part = piece.place..piece.place + piece.length();
            let file = &self.layers[piece.layer].file;
            read_in_pieces(file, part, |bytes| writer.write_all(bytes))
        })
    }
}

/// The lower layers of an image, which a later image shares.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    layers: &'a Layers,
    files: usize,
}

impl<'a> Base<'a> {
    fn layers(&self) -> &'a [Arc<Layer>] {
        &self.layers.layers[..self.files]
    }

    /// Whether at least half of the bytes in these layers are still referenced. A layer is kept as a whole.
    fn is_useful(&self) -> bool {
        let held: u64 = self.layers().iter().map(|layer| layer.bytes).sum();
        let pieces = self.layers.pieces.iter();
        let used = pieces.filter(|piece| piece.layer < self.files);
        held <= 2 * used.map(Piece::length).sum::<u64>()
    }

    /// Adds each layer with its length to `kept`, keyed by address so that a shared layer counts once.
    pub fn list(&self, kept: &mut BTreeMap<*const Layer, u64>) {
        let files = self.layers().iter();
        kept.extend(files.map(|layer| (Arc::as_ptr(layer), layer.bytes)));
    }
}

/// The position of every page, for the process that is restored from the image.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pieces: &'a [Piece],
    /// The descriptors of the layers in that process.
    pub descriptors: &'a [RawFd],
}

impl<'a> Places<'a> {
    /// Returns the table for these pieces.
    pub fn of(pieces: &'a [Piece], descriptors: &'a [RawFd]) -> Self {
        Self {
            pieces,
            descriptors,
        }
    }

    /// Returns the layer's descriptor and the offset of the page at `address`.
    pub fn at(&self, address: u64) -> Place {
        let number = self
            .pieces
            .partition_point(|piece| piece.pages.end <= address);
        let found = self.pieces.get(number).and_then(|piece| {
            Some(Place {
                descriptor: *self.descriptors.get(piece.layer)?,
                offset: piece.place + address.saturating_sub(piece.pages.start),
            })
        });
        // Callers look up only addresses of pieces. No file is that long, so that a read at this offset fails.
        found.unwrap_or(Place {
            descriptor: 0,
            offset: u64::MAX >> 1,
        })
    }
}

fn offset(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn filled(pages: &[u8]) -> Vec<u8> {
        pages.iter().flat_map(|with| [*with; 4096]).collect()
    }

    fn image(beneath: Option<&Layers>, ranges: &[(u64, Vec<u8>)]) -> (Layers, u64) {
        let file: File = tempfile::tempfile().expect("there is room");
        let mut builder = LayersBuilder::new(&file, beneath.and_then(Layers::base));
        for (start, pages) in ranges {
            for (start, pages) in (*start..).step_by(offset(16 * PAGE)).zip(pages.chunks(16)) {
                let bytes = filled(pages);
                let range = start..start + bytes.len() as u64;
                builder.add(&range, &bytes).expect("there is room");
            }
        }
        let again = file.try_clone().expect("a descriptor");
        let written = builder.written;
        let layers = builder.finish(again.into(), None);
        assert_eq!(layers.own(), written);
        (layers, written)
    }

    fn read(layers: &Layers) -> Vec<u8> {
        let mut all = Vec::new();
        layers.write_to(&mut all).expect("it can be read");
        all
    }

    #[test]
    fn single_layer_stores_pages_contiguously() {
        let (layers, written) = image(None, &[(0x1000, vec![1, 2]), (0x8000, vec![3])]);
        assert_eq!(written, 3 * PAGE);
        let places = layers.places(&[9]);
        let found = [0x1000, 0x2fff, 0x8000, 0x8fff].map(|address| places.at(address).offset);
        assert_eq!(found, [0, 0x1fff, 0x2000, 0x2fff]);
        assert_eq!(places.at(0x8000).descriptor, 9);
        assert!(places.at(0x9000).offset > 1 << 62);
    }

    #[test]
    fn only_changed_pages_are_written_again() {
        let many = |with: u8| vec![with; 40];
        let (first, written) = image(None, &[(0x10_0000, many(1)), (0x20_0000, vec![5; 20])]);
        assert_eq!(written, 60 * PAGE);
        let mut changed = many(1);
        changed[30] = 2;
        let now = [
            (0x10_0000, changed.clone()),
            (0x1f_0000, vec![7; 16]),
            (0x20_0000, vec![5; 20]),
        ];
        let (second, written) = image(Some(&first), &now);
        // Sixteen pages, one of which changed, and sixteen new ones.
        assert_eq!(written, (16 + 16) * PAGE);
        let all: Vec<u8> = now.iter().flat_map(|(_, pages)| pages.clone()).collect();
        assert!(read(&second) == filled(&all));
        assert_eq!(second.files().len(), 2);
        drop(first);
        let (third, written) = image(Some(&second), &now);
        assert_eq!(written, 0);
        assert!(read(&third) == filled(&all));
        let mut kept = BTreeMap::new();
        second.list(&mut kept);
        third.list(&mut kept);
        assert_eq!(kept.values().sum::<u64>(), (60 + 32) * PAGE);
    }

    #[test]
    fn number_of_layers_is_bounded() {
        let mut pages = vec![0; 256];
        let mut last = image(None, &[(0x10_0000, pages.clone())]).0;
        let first = Arc::clone(&last.layers[0]);
        for round in 1..30 {
            pages[usize::from(round) / 8 * 16] = round;
            let written;
            (last, written) = image(Some(&last), &[(0x10_0000, pages.clone())]);
            // The other changed pages are written again once their layers are dropped.
            assert!(written <= 64 * PAGE, "{round}: {written}");
            assert!(Arc::ptr_eq(&first, &last.layers[0]));
            assert!(read(&last) == filled(&pages));
            assert!(last.files().len() <= MAX_LAYERS);
        }
    }

    #[test]
    fn mostly_unreferenced_layers_are_dropped() {
        let mut last = image(None, &[(0x10_0000, vec![0; 64])]).0;
        for round in 1..30 {
            let pages = vec![round; 64];
            last = image(Some(&last), &[(0x10_0000, pages.clone())]).0;
            assert!(read(&last) == filled(&pages));
            let mut kept = BTreeMap::new();
            last.list(&mut kept);
            assert!(kept.values().sum::<u64>() <= (2 + 1) * 64 * PAGE);
        }
    }
}
