//! Saves snapshots to files, from which a sandbox of another process can resume sessions.
//!
//! A file is useless to another user, after a reboot, or under another policy, and nothing in it is trusted until its
//! authentication code proves that this user saved it (HMAC, RFC 2104). It holds a guest's bytes and the lists that the
//! supervisor made of them. What a restored worker may do is decided by the policy, as for any other worker.
//!
//! Layout: a prefix of fixed length, the head as JSON, the memory, the contents of the directories, and the
//! authentication code.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::capture::require_room;
use super::layers::Layers;
use super::medium::Medium;
use super::refusal::{Doing, SnapshotRefusal};
use super::{Image, ImageKind, Lists, Shelf};
use crate::host::with_hint;
use crate::outcome::{LimitName, Limits};
use crate::supervisor::cache::{Unused, snapshot_key};
use crate::supervisor::descriptors::CHUNK;
use crate::supervisor::embedded::WORKER;
use crate::supervisor::files::reopen;
use crate::supervisor::instance_name::boot_id;
use crate::supervisor::part::Part;
use crate::supervisor::regular_file::open_regular;
use crate::supervisor::zygote::Zygote;

/// The first bytes of a file, with the version of the format.
const MAGIC: [u8; 16] = *b"sandfork-saved-2";

/// The length of the prefix: the magic bytes, and the lengths of head, memory and directories.
const PREFIX: usize = 16 + 3 * 8;

/// The length of the authentication code.
const CODE: u64 = 32;

/// The maximum length of the head.
const MAX_HEAD: u64 = 64 << 20;

/// What must match between the process that saves a snapshot and the process that resumes it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct MadeBy {
    boot: String,
    build: [u8; 32],
    interpreter: String,
    policy: String,
}

impl MadeBy {
    /// Describes this process, with a sandbox of this interpreter and of the policy with this hash.
    pub fn here(interpreter: String, policy: String) -> Result<Self, SnapshotRefusal> {
        let boot = boot_id().doing("read /proc/sys/kernel/random/boot_id")?;
        Ok(Self {
            boot,
            build: Sha256::digest(WORKER.bytes).into(),
            interpreter,
            policy,
        })
    }

    /// Returns why a snapshot saved by `saved` cannot be resumed here, as the rest of a sentence.
    fn differs(&self, saved: &Self) -> Option<String> {
        if self.boot != saved.boot {
            return Some("was saved before this machine started; no process lives longer".into());
        }
        if self.build != saved.build {
            return Some("was saved by another version of Sandfork".into());
        }
        if self.interpreter != saved.interpreter {
            let (theirs, ours) = (&saved.interpreter, &self.interpreter);
            return Some(format!(
                "was saved with the interpreter {theirs}, and this sandbox has {ours}: set `python.interpreter`"
            ));
        }
        (self.policy != saved.policy).then(|| {
            let (theirs, ours) = (short(&saved.policy), short(&self.policy));
            format!("was saved under another policy (its hash is {theirs}, this one's {ours}): give the same policy and limits")
        })
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// The head of a file. `L` is a borrowed or owned [`Lists`].
#[derive(Debug, Serialize, Deserialize)]
struct Head<L> {
    made_by: MadeBy,
    lists: L,
    pages: Vec<Range<u64>>,
}

impl Image {
    /// Returns the image as [`load`](Self::load) would return it after a save, for workers of this zygote.
    pub fn as_saved(&self, zygote: &Arc<Zygote>) -> Result<Self, SnapshotRefusal> {
        if let Some(path) = self.unreadable.clone() {
            return Err(SnapshotRefusal::Unreadable(path));
        }
        Ok(Self {
            zygote: Arc::clone(zygote),
            kind: ImageKind::Saved,
            layers: self.layers.clone(),
            trees: self.trees.try_clone().doing("copy an image's descriptor")?,
            lists: self.lists.clone(),
            bytes_of_trees: self.bytes_of_trees,
            unreadable: None,
        })
    }

    /// Saves the image to a file that only this user can read, and returns the file's length. An existing file is
    /// replaced atomically once everything is written.
    pub fn save(
        &self,
        made_by: MadeBy,
        limits: &Limits,
        path: &Path,
    ) -> Result<u64, SnapshotRefusal> {
        // A worker restored from the file shares no memory with its interpreter.
        let most = limits.memory_allowance();
        require_room(limits, self.whole(), most, LimitName::Memory)?;
        let refused = |why: &str, errno| {
            let why = format!("it cannot be saved as `{}`: {why}", path.display());
            SnapshotRefusal::Saved { why, errno }
        };
        let unsaved = |why: String| refused(&why, None);
        let failed = |error: io::Error| refused(&reason(&error), errno_of(&error));
        let key = snapshot_key().map_err(|error| unsaved(no_key(&error)))?;
        let head = Head {
            made_by,
            lists: &self.lists,
            pages: self.layers.pages(),
        };
        let head = serde_json::to_vec(&head).map_err(|error| unsaved(error.to_string()))?;
        if head.len() as u64 > MAX_HEAD {
            return Err(unsaved("the list of its memory is too long".into()));
        }
        let part = Part::create(path, 0o600).map_err(failed)?;
        let written = self.write(&head, &key, &part.file);
        let length = written.and_then(|length| part.finish(path).map(|()| length));
        length.map_err(failed)
    }

    fn write(&self, head: &[u8], key: &[u8], file: &File) -> io::Result<u64> {
        let trees = File::from(reopen(&self.trees, OFlag::O_RDONLY)?);
        let lengths = [
            head.len() as u64,
            self.layers.length(),
            trees.metadata()?.len(),
        ];
        let mut writer = Authenticated::new(file, key);
        writer.write_all(&MAGIC)?;
        for length in lengths {
            writer.write_all(&length.to_le_bytes())?;
        }
        writer.write_all(head)?;
        self.layers.write_to(&mut writer)?;
        copy(&trees, &mut writer, lengths[2])?;
        let code = writer.code.finalize().into_bytes();
        let mut file = file;
        file.write_all(&code)?;
        Ok(PREFIX as u64 + lengths.iter().sum::<u64>() + CODE)
    }

    /// Loads an image that [`save`](Self::save) wrote, for workers of this zygote.
    pub fn load(
        path: &Path,
        made_by: &MadeBy,
        limits: &Limits,
        zygote: &Arc<Zygote>,
        shelf: &Shelf,
    ) -> Result<Self, SnapshotRefusal> {
        let of_file = |why: &str, errno| {
            let why = format!("`{}` {why}", path.display());
            SnapshotRefusal::Saved { why, errno }
        };
        let refused = |why: &str| of_file(why, None);
        let unread = |why: String, errno| of_file(&format!("cannot be read: {why}"), errno);
        let io = |error: io::Error| unread(reason(&error), errno_of(&error));
        let file = open_regular(path).map_err(io)?;
        let sections = Sections::of(&file).map_err(io)?;
        let Some(sections) = sections else {
            return Err(refused("is not a saved snapshot, or is truncated"));
        };
        if sections.memory.saturating_add(sections.trees) > limits.memory_allowance() {
            // Checked before the contents are copied to disk: no snapshot saved under this policy is larger.
            return Err(refused(
                "is larger than `limits.memory` of this policy allows",
            ));
        }
        let key = snapshot_key().map_err(|error| unread(no_key(&error), None))?;
        let mut reader = Authenticated::new(&file, &key);
        reader.code.update(&sections.prefix);
        let mut head = Vec::new();
        copy(&mut reader, &mut head, sections.head).map_err(io)?;
        // The authentication code at the end covers the whole file. Until it is verified, the contents are opaque bytes.
        let (memory, reserved) =
            Medium::Disk.reserve(sections.memory, sections.trees, &shelf.on_disk)?;
        copy(&mut reader, &mut &memory, sections.memory).map_err(io)?;
        let trees = Medium::Disk.file(c"sandfork-files")?;
        copy(&mut reader, &mut &trees, sections.trees).map_err(io)?;
        let mut code = [0; 32];
        let expected = reader.code;
        (&file).read_exact(&mut code).map_err(io)?;
        if expected.verify(&code.into()).is_err() {
            let why = "was saved by another user, was changed since, or the key is gone with which it was saved";
            return Err(refused(why));
        }
        let head: Head<Lists> = serde_json::from_slice(&head)
            .map_err(|_| refused("was saved by another version of Sandfork"))?;
        if let Some(why) = made_by.differs(&head.made_by) {
            return Err(refused(&why));
        }
        Ok(Self {
            zygote: Arc::clone(zygote),
            kind: ImageKind::Saved,
            layers: Layers::alone(Medium::Disk.finish(&memory)?, &head.pages, Some(reserved)),
            trees: Medium::Disk.finish(&trees)?,
            lists: head.lists,
            bytes_of_trees: sections.trees,
            unreadable: None,
        })
    }
}

/// The lengths of a file's sections. The prefix states them, and the file's length confirms them.
struct Sections {
    prefix: [u8; PREFIX],
    head: u64,
    memory: u64,
    trees: u64,
}

impl Sections {
    fn of(mut file: &File) -> io::Result<Option<Self>> {
        let length = file.metadata()?.len();
        let mut prefix = [0; PREFIX];
        if length < PREFIX as u64 + CODE {
            return Ok(None);
        }
        file.read_exact(&mut prefix)?;
        let field = |number: usize| {
            let at = MAGIC.len() + 8 * number;
            prefix[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
        };
        let (head, memory, trees) = (field(0), field(1), field(2));
        let all = [PREFIX as u64, head, memory, trees, CODE];
        let all = all.into_iter().try_fold(0_u64, u64::checked_add);
        let is_whole = prefix.starts_with(&MAGIC) && head <= MAX_HEAD && all == Some(length);
        Ok(is_whole.then_some(Self {
            prefix,
            head,
            memory,
            trees,
        }))
    }
}

/// A file whose bytes are added to an authentication code as they are read or written.
struct Authenticated<'a> {
    file: &'a File,
    code: Hmac<Sha256>,
}

impl<'a> Authenticated<'a> {
    fn new(file: &'a File, key: &[u8]) -> Self {
        let code = Hmac::new_from_slice(key);
        #[allow(clippy::expect_used, reason = "RFC 2104 defines keys of any length")]
        let code = code.expect("a key has any length");
        Self { file, code }
    }
}

impl Write for Authenticated<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.code.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Read for Authenticated<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(room)?;
        self.code.update(&room[..read]);
        Ok(read)
    }
}

/// Copies exactly `length` bytes.
fn copy(from: impl Read, to: &mut impl Write, length: u64) -> io::Result<()> {
    let copied = io::copy(&mut BufReader::with_capacity(CHUNK, from.take(length)), to)?;
    if copied < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Returns the description of the kernel's error, without its number.
fn reason(error: &io::Error) -> String {
    errno_of(error).map_or_else(|| error.to_string(), with_hint)
}

fn errno_of(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

fn no_key(error: &Unused) -> String {
    format!("the key of this user's snapshots cannot be used: {error}")
}
