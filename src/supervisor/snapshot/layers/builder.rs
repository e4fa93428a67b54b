//! Writes the memory of an image: a page that a base layer already holds is referenced, and any other is appended to
//! the image's own file.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{Base, Layer, Layers, Piece, offset};
use crate::supervisor::snapshot::shelf::Reserved;
use crate::supervisor::snapshot::steps::split_by;

/// The page contents of an image during capture.
#[derive(Debug)]
pub struct LayersBuilder<'a> {
    base: Option<Base<'a>>,
    file: &'a File,
    /// The bytes written to the file so far.
    pub written: u64,
    pieces: Vec<Piece>,
    before: Vec<u8>,
}

impl<'a> LayersBuilder<'a> {
    /// Starts a file over the layers of `base`.
    pub fn new(file: &'a File, base: Option<Base<'a>>) -> Self {
        Self {
            base,
            file,
            written: 0,
            pieces: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Adds the contents of a range of pages. Ranges must arrive in order. The part of a range that lies in one piece
    /// of the base is compared as a whole, and either referenced or written entirely, because each separate run of
    /// pages costs every fork one more step.
    pub fn add(&mut self, range: &Range<u64>, bytes: &[u8]) -> io::Result<()> {
        let Some(base) = self.base else {
            return self.write(range.clone(), bytes);
        };
        for (part, piece) in split_by(range, &base.layers.pieces, |piece| &piece.pages) {
            let bytes = &bytes[offset(part.start - range.start)..offset(part.end - range.start)];
            let place = piece
                .filter(|piece| piece.layer < base.files)
                .map(|piece| (piece.layer, piece.place + part.start - piece.pages.start));
            match place {
                Some((layer, place)) if self.is_same(&base.layers()[layer], place, bytes)? => {
                    self.push(part, layer, place);
                }
                _ => self.write(part, bytes)?,
            }
        }
        Ok(())
    }

    fn is_same(&mut self, layer: &Layer, place: u64, bytes: &[u8]) -> io::Result<bool> {
        self.before.resize(bytes.len(), 0);
        layer.file.read_exact_at(&mut self.before, place)?;
        Ok(self.before == bytes)
    }

    fn write(&mut self, pages: Range<u64>, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file;
        file.write_all(bytes)?;
        let own = self.base.map_or(0, |base| base.files);
        self.push(pages, own, self.written);
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn push(&mut self, pages: Range<u64>, layer: usize, place: u64) {
        if let Some(last) = self.pieces.last_mut()
            && last.layer == layer
            && last.pages.end == pages.start
            && last.place + last.length() == place
        {
            last.pages.end = pages.end;
            return;
        }
        self.pieces.push(Piece {
            pages,
            layer,
            place,
        });
    }

    /// Completes the layers, with `file` as the read-only descriptor of the file that was written.
    pub fn finish(self, file: OwnedFd, on_disk: Option<Reserved>) -> Layers {
        let mut layers = self
            .base
            .map_or_else(Vec::new, |base| base.layers().to_vec());
        layers.push(Arc::new(Layer {
            file: file.into(),
            bytes: self.written,
            _on_disk: on_disk,
        }));
        Layers {
            layers,
            pieces: self.pieces,
        }
    }
}
