//! Makes the memory of an image: what is not in the files of the image beneath it goes to a file of its own.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::{Layer, Layers, Piece, offset, read_exact_at};
use crate::supervisor::snapshot::shelf::Reserved;
use crate::supervisor::snapshot::steps::PAGE;

/// The fewest pages in a row that are left in an earlier file: each row costs a step of every fork.
const FEWEST: u64 = 16;

/// The pages of an image in the making.
#[derive(Debug)]
pub struct LayersInMaking<'a> {
    beneath: Option<&'a Layers>,
    file: &'a File,
    written: u64,
    pieces: Vec<Piece>,
    before: Vec<u8>,
}

impl<'a> LayersInMaking<'a> {
    /// Begins a file over those of another image.
    pub fn new(file: &'a File, beneath: Option<&'a Layers>) -> Self {
        Self {
            beneath: beneath.filter(|layers| layers.bears_more()),
            file,
            written: 0,
            pieces: Vec::new(),
            before: Vec::new(),
        }
    }

    /// Adds pages with their contents. They come in order.
    pub fn add(&mut self, range: &Range<u64>, bytes: &[u8]) -> io::Result<()> {
        let Some(beneath) = self.beneath else {
            return self.write(range.clone(), bytes);
        };
        for (part, piece) in beneath.split(range) {
            let bytes = &bytes[offset(part.start - range.start)..offset(part.end - range.start)];
            match piece {
                None => self.write(part, bytes)?,
                Some(piece) => self.add_changed(beneath, part, piece, bytes)?,
            }
        }
        Ok(())
    }

    /// Adds pages that a piece of the other image has too.
    fn add_changed(
        &mut self,
        beneath: &Layers,
        part: Range<u64>,
        piece: &Piece,
        bytes: &[u8],
    ) -> io::Result<()> {
        let place = |address: u64| piece.place + (address - piece.pages.start);
        let mut before = std::mem::take(&mut self.before);
        before.resize(bytes.len(), 0);
        let file = &beneath.layers[piece.layer].file;
        read_exact_at(file.as_fd(), &mut before, place(part.start))?;
        for (pages, is_same) in rows(bytes, &before) {
            let row = part.start + pages.start..part.start + pages.end;
            if is_same {
                self.push(row.clone(), piece.layer, place(row.start));
            } else {
                self.write(row, &bytes[offset(pages.start)..offset(pages.end)])?;
            }
        }
        self.before = before;
        Ok(())
    }

    fn write(&mut self, pages: Range<u64>, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file;
        file.write_all(bytes)?;
        let own = self.beneath.map_or(0, |layers| layers.layers.len());
        self.push(pages, own, self.written);
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn push(&mut self, pages: Range<u64>, layer: usize, place: u64) {
        if let Some(last) = self.pieces.last_mut()
            && last.layer == layer
            && last.pages.end == pages.start
            && last.place + (last.pages.end - last.pages.start) == place
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

    /// How many bytes were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// All files and pieces, with this file in place of the one that was written.
    pub fn finish(self, file: OwnedFd, on_disk: Option<Reserved>) -> Layers {
        let mut layers = self
            .beneath
            .map_or_else(Vec::new, |layers| layers.layers.clone());
        layers.push(Arc::new(Layer {
            file,
            bytes: self.written,
            _on_disk: on_disk,
        }));
        Layers {
            layers,
            pieces: self.pieces,
        }
    }
}

/// Rows of pages, by their offsets, and whether both have the same in them. A short row of the same counts as changed,
/// unless it is all that there is.
fn rows(now: &[u8], before: &[u8]) -> Vec<(Range<u64>, bool)> {
    let page = offset(PAGE);
    let mut rows: Vec<(Range<u64>, bool)> = Vec::new();
    let pages = now.chunks(page).zip(before.chunks(page));
    for (start, (now, before)) in (0..).step_by(page).zip(pages) {
        let is_same = now == before;
        let end = start + now.len() as u64;
        match rows.last_mut() {
            Some((row, same)) if *same == is_same => row.end = end,
            _ => rows.push((start..end, is_same)),
        }
    }
    if rows.len() == 1 {
        return rows;
    }
    let mut merged: Vec<(Range<u64>, bool)> = Vec::new();
    for (row, is_same) in rows {
        let is_same = is_same && row.end - row.start >= FEWEST * PAGE;
        match merged.last_mut() {
            Some((last, same)) if *same == is_same => last.end = row.end,
            _ => merged.push((row, is_same)),
        }
    }
    merged
}
