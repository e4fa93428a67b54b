//! Files of requests, of their answers, and of sessions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, posix_fallocate};
use sandfork::session::{Contents, Parents, Removal, Session};
use sandfork::{GuestPath, Request};

use crate::failure::Failure;
use crate::http::{Budget, Held};
use crate::locked;

/// The files of a request.
pub type Encoded = BTreeMap<String, Option<String>>;

/// Decodes the files of a request, each in place of its text. A file without contents is none.
///
/// # Errors
/// If one is not base64, or its path leads out of the work directory.
pub fn decoded(files: Encoded) -> Result<Vec<(GuestPath, Vec<u8>)>, Failure> {
    let files = files
        .into_iter()
        .filter_map(|(path, contents)| Some((path, contents?)));
    let decode = |(path, contents): (String, String)| {
        let bytes = STANDARD.decode(contents.trim_ascii());
        let bytes =
            bytes.map_err(|_| Failure::Request(format!("files: `{path}` is not base64")))?;
        Ok((guest_path(&path)?, bytes))
    };
    files.map(decode).collect()
}

/// Writes a file of a session, with the directories above it. One without room for that stays as it was, and a new one is
/// removed.
///
/// # Errors
/// If the path leads out of the work directory, or there is no room.
pub fn put(session: &mut Session, path: &str, contents: &[u8]) -> Result<(), Failure> {
    // Before the directories above it: an error names the path that was sent.
    guest_path(path)?;
    if let Some((directory, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
        session.make_dir(directory, Parents::Made)?;
    }
    let was_there = session.stat(path).is_ok();
    // With its contents: it is emptied only when there is room for others.
    let file = session.open_write(path, Contents::Kept)?;
    replace(file, contents).map_err(|error| {
        if !was_there {
            // The guest may have removed it.
            _ = session.remove(path, Removal::Single);
        }
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull => ": `filesystem.work_size` of the policy is all there is",
            _ => "",
        };
        Failure::Request(format!("`{path}`: {error}{remedy}"))
    })
}

/// Writes these contents in place of a file's, in the file itself: the guest may have it open.
fn replace(mut file: File, contents: &[u8]) -> io::Result<()> {
    // It was opened to append.
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    let (before, size) = (file.metadata()?.len(), contents.len() as u64);
    if before > 0 && size > 0 {
        let whole = i64::try_from(size).map_err(io::Error::other)?;
        if let Err(errno) = posix_fallocate(&file, 0, whole)
            // With another error, this file system reserves nothing.
            && matches!(errno, Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)
        {
            file.set_len(before)?;
            return Err(errno.into());
        }
    }
    file.write_all(contents)
        .inspect_err(|_| _ = (before == 0).then(|| file.set_len(0)))?;
    file.set_len(size)
}

/// Reads a file of a session, and holds its memory.
///
/// # Errors
/// If there is none, or it has more bytes than an answer may have.
pub fn read(
    most: u64,
    budget: &Budget,
    session: &mut Session,
    path: &str,
) -> Result<(Vec<u8>, Held), Failure> {
    let (file, size) = session.open_read(path).map_err(failed)?;
    if size > most {
        return Err(Failure::Request(format!(
            "`{path}` has {size} bytes, more than the {most} of an answer"
        )));
    }
    let held = budget.hold(size)?;
    let mut bytes = Vec::new();
    // The guest may go on writing.
    let read = file.take(size).read_to_end(&mut bytes);
    read.map_err(|error| Failure::Request(format!("`{path}`: {error}")))?;
    Ok((bytes, held))
}

/// An error of a file: what is missing is not found, and all else is a mistake of the request.
pub fn failed(error: sandfork::Error) -> Failure {
    let kind = error
        .errno()
        .map(|errno| io::Error::from_raw_os_error(errno).kind());
    match kind {
        Some(io::ErrorKind::NotFound) => Failure::NotFound(error.to_string()),
        _ => error.into(),
    }
}

/// A path in the work directory.
///
/// # Errors
/// If it leads elsewhere.
pub fn guest_path(path: &str) -> Result<GuestPath, Failure> {
    Ok(GuestPath::of_file(path)?)
}

/// Files that a guest left.
#[derive(Clone, Debug)]
pub struct Fetched {
    paths: Vec<(String, GuestPath)>,
    most: u64,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    files: BTreeMap<String, Vec<u8>>,
    bytes: u64,
}

impl Fetched {
    /// Will fetch these, and no more bytes than `most` of all together.
    ///
    /// # Errors
    /// If one leads out of the work directory.
    pub fn new(paths: &[String], most: u64) -> Result<Self, Failure> {
        let paths = paths
            .iter()
            .map(|path| Ok((path.clone(), guest_path(path)?)));
        Ok(Self {
            paths: paths.collect::<Result<_, Failure>>()?,
            most,
            found: Arc::default(),
        })
    }

    /// Adds them to what the request brings.
    pub fn from(&self, request: Request) -> Request {
        if self.paths.is_empty() {
            return request;
        }
        let paths = self.paths.iter().map(|(_, path)| path.clone()).collect();
        let fetched = self.clone();
        request.fetch(paths, move |number, opened| {
            // What the guest did not leave is missing in the answer.
            if let Ok((file, _)) = opened {
                fetched.keep(number, file);
            }
        })
    }

    fn keep(&self, number: usize, file: File) {
        let mut found = locked(&self.found);
        let mut bytes = Vec::new();
        let left = self.most - found.bytes;
        let read = file.take(left + 1).read_to_end(&mut bytes);
        // What does not fit is missing rather than torn.
        if read.is_ok() && bytes.len() as u64 <= left {
            found.bytes += bytes.len() as u64;
            found.files.insert(self.paths[number].0.clone(), bytes);
        }
    }

    /// One of them, as it was.
    pub fn take(&self, path: &str) -> Option<Vec<u8>> {
        let mut found = locked(&self.found);
        found.files.remove(path)
    }

    /// All of them, encoded.
    pub fn encoded(&self) -> BTreeMap<String, String> {
        let found = locked(&self.found);
        let encode = |(path, bytes): (&String, &Vec<u8>)| (path.clone(), STANDARD.encode(bytes));
        found.files.iter().map(encode).collect()
    }
}
