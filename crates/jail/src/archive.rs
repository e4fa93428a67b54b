//! The format in which a worker's files are archived: a stream of entries. Pure: the supervisor writes the stream from
//! the directories of one worker, and another worker unpacks it into its own.
//!
//! A tree's files come first, without names and in the order of their inode numbers, so that they can be recreated with
//! the same numbers. Their names follow, a directory's name before the names in it, and then the root directory of the
//! tree. The size field of an entry announces the data that follows it: the target of a symbolic link, or the pieces of
//! a file.

/// The length of an encoded entry without its name, bytes.
pub const ENTRY: usize = 40;

/// The length of a piece header, bytes: the offset of the piece in the file, and the number of bytes that follow. A
/// piece without bytes ends the file.
pub const PIECE: usize = 16;

/// The maximum length of a name and of a link target (path_resolution(7)).
pub const MAX_NAME: usize = 4096;

/// The type of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A name (hard link) of a file that came earlier: its path in the tree.
    Name,
    /// The root directory of the tree, which ends the tree.
    Root,
}

const KINDS: [(Kind, u8); 6] = [
    (Kind::Directory, b'd'),
    (Kind::File, b'f'),
    (Kind::Symlink, b'l'),
    (Kind::Fifo, b'p'),
    (Kind::Name, b'n'),
    (Kind::Root, b'r'),
];

/// An entry without its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The type of the entry.
    pub kind: Kind,
    /// The length of the name, bytes.
    pub name: usize,
    /// The permission bits.
    pub mode: u32,
    /// The modification time: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// The size of a file, or the length of a link target, bytes.
    pub size: u64,
    /// The inode number.
    pub inode: u64,
}

impl Entry {
    /// Encodes the entry.
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let letter = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        bytes[0] = letter.map_or(0, |(_, letter)| *letter);
        let name = u16::try_from(self.name).unwrap_or(u16::MAX);
        bytes[2..4].copy_from_slice(&name.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.mode.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.modified.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.modified.1.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.inode.to_le_bytes());
        bytes
    }

    /// Decodes an entry. Returns `None` if the bytes are not a valid entry.
    pub fn decode(bytes: &[u8; ENTRY]) -> Option<Self> {
        let part = |from: usize| -> [u8; 8] {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[from..from + 8]);
            part
        };
        let (kind, _) = KINDS.iter().find(|(_, letter)| *letter == bytes[0])?;
        let name = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        let mode = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let nanoseconds = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
        let entry = Self {
            kind: *kind,
            name,
            mode,
            modified: (i64::from_le_bytes(part(8)), nanoseconds),
            size: u64::from_le_bytes(part(24)),
            inode: u64::from_le_bytes(part(32)),
        };
        let is_short = *kind != Kind::Symlink || entry.size <= MAX_NAME as u64;
        (name <= MAX_NAME && is_short).then_some(entry)
    }
}

/// Encodes the header of a piece.
pub fn piece(offset: u64, length: u64) -> [u8; PIECE] {
    let mut bytes = [0; PIECE];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Decodes the header of a piece into its offset and length.
pub fn piece_of(bytes: &[u8; PIECE]) -> (u64, u64) {
    let part = |from: usize| {
        let mut part = [0; 8];
        part.copy_from_slice(&bytes[from..from + 8]);
        u64::from_le_bytes(part)
    };
    (part(0), part(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_round_trips() {
        for (kind, _) in KINDS {
            let entry = Entry {
                kind,
                name: 12,
                mode: 0o755,
                modified: (-5, 999_999_999),
                size: 4096,
                inode: 1 << 40,
            };
            assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
        assert_eq!(piece_of(&piece(7, 1 << 40)), (7, 1 << 40));
    }

    #[test]
    fn invalid_entry_is_rejected() {
        assert_eq!(Entry::decode(&[0; ENTRY]), None);
        let link = Entry {
            kind: Kind::Symlink,
            name: 1,
            mode: 0,
            modified: (0, 0),
            size: MAX_NAME as u64 + 1,
            inode: 2,
        };
        assert_eq!(Entry::decode(&link.encode()), None);
    }
}
