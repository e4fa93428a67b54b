//! Files in requests, responses and sessions.

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

/// The files of a request: base64 by path.
pub type Encoded = BTreeMap<String, Option<String>>;

/// Decodes the files of a request. Files without contents are skipped.
///
/// # Errors
/// Returns an error if a file is not valid base64, or if its path leads out of the work directory.
pub fn decoded(files: Encoded) -> Result<Vec<(GuestPath, Vec<u8>)>, Failure> {
    let files = files
        .into_iter()
        .filter_map(|(path, contents)| Some((path, contents?)));
    let decode = |(path, contents): (String, String)| {
        let bytes = STANDARD.decode(contents.trim_ascii());
        let bytes =
            bytes.map_err(|_| Failure::Request(format!("files: `{path}` is not valid base64")))?;
        Ok((guest_path(&path)?, bytes))
    };
    files.map(decode).collect()
}

/// Writes a file of a session, creating its parent directories. If there is not enough space, an existing file stays
/// unchanged and a new one is removed.
///
/// # Errors
/// Returns an error if the path leads out of the work directory, or if there is not enough space.
pub fn put(session: &mut Session, path: &str, contents: &[u8]) -> Result<(), Failure> {
    // Check the path before creating directories, so that an error quotes the path that was sent.
    guest_path(path)?;
    if let Some((directory, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
        session.make_dir(directory, Parents::Made)?;
    }
    let was_there = session.stat(path).is_ok();
    // Open without truncating: the file is replaced only once there is space for the new contents.
    let file = session.open_write(path, Contents::Kept)?;
    replace(file, contents).map_err(|error| {
        if !was_there {
            // The guest may already have removed it.
            _ = session.remove(path, Removal::Single);
        }
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull => ": the limit is `filesystem.work_size` of the policy",
            _ => "",
        };
        Failure::Request(format!("`{path}`: {error}{remedy}"))
    })
}

/// Replaces the contents of a file in place, because the guest may have the file open.
fn replace(mut file: File, contents: &[u8]) -> io::Result<()> {
    // Clear `O_APPEND`, with which the file was opened.
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    let (before, size) = (file.metadata()?.len(), contents.len() as u64);
    if before > 0 && size > 0 {
        let whole = i64::try_from(size).map_err(io::Error::other)?;
        if let Err(errno) = posix_fallocate(&file, 0, whole)
            // Other errors mean that this file system does not support preallocation.
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

/// Reads a file of a session, and reserves memory for it.
///
/// # Errors
/// Returns an error if the file does not exist or exceeds the maximum size of a response.
pub fn read(
    max: u64,
    budget: &Budget,
    session: &mut Session,
    path: &str,
) -> Result<(Vec<u8>, Held), Failure> {
    let (file, size) = session.open_read(path).map_err(failed)?;
    if size > max {
        return Err(Failure::Request(format!(
            "`{path}` has {size} bytes, but a response has at most {max}"
        )));
    }
    let held = budget.hold(size)?;
    let mut bytes = Vec::new();
    // The guest may append to the file meanwhile.
    let read = file.take(size).read_to_end(&mut bytes);
    read.map_err(|error| Failure::Request(format!("`{path}`: {error}")))?;
    Ok((bytes, held))
}

/// Converts a file error: a missing file becomes `NotFound`, every other error what its kind implies.
pub fn failed(error: sandfork::Error) -> Failure {
    let kind = error
        .errno()
        .map(|errno| io::Error::from_raw_os_error(errno).kind());
    match kind {
        Some(io::ErrorKind::NotFound) => Failure::NotFound(error.to_string()),
        _ => error.into(),
    }
}

/// Parses a path in the work directory.
///
/// # Errors
/// Returns an error if the path leads out of it.
pub fn guest_path(path: &str) -> Result<GuestPath, Failure> {
    Ok(GuestPath::of_file(path)?)
}

/// Files to collect from a guest after its run.
#[derive(Clone, Debug)]
pub struct Fetched {
    paths: Vec<(String, GuestPath)>,
    max_bytes: u64,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    files: BTreeMap<String, Vec<u8>>,
    bytes: u64,
}

impl Fetched {
    /// Prepares to collect these files, up to `max_bytes` in total.
    ///
    /// # Errors
    /// Returns an error if a path leads out of the work directory.
    pub fn new(paths: &[String], max_bytes: u64) -> Result<Self, Failure> {
        let paths = paths
            .iter()
            .map(|path| Ok((path.clone(), guest_path(path)?)));
        Ok(Self {
            paths: paths.collect::<Result<_, Failure>>()?,
            max_bytes,
            found: Arc::default(),
        })
    }

    /// Adds the files to those that a run collects.
    pub fn add_to(&self, request: Request) -> Request {
        if self.paths.is_empty() {
            return request;
        }
        let paths = self.paths.iter().map(|(_, path)| path.clone()).collect();
        let fetched = self.clone();
        request.fetch(paths, move |number, opened| {
            // Files that the guest did not create are omitted from the response.
            if let Ok((file, _)) = opened {
                fetched.keep(number, file);
            }
        })
    }

    fn keep(&self, number: usize, file: File) {
        let mut found = locked(&self.found);
        let mut bytes = Vec::new();
        let left = self.max_bytes - found.bytes;
        let read = file.take(left + 1).read_to_end(&mut bytes);
        // A file that does not fit is omitted rather than truncated.
        if read.is_ok() && bytes.len() as u64 <= left {
            found.bytes += bytes.len() as u64;
            found.files.insert(self.paths[number].0.clone(), bytes);
        }
    }

    /// Takes a collected file.
    pub fn take(&self, path: &str) -> Option<Vec<u8>> {
        let mut found = locked(&self.found);
        found.files.remove(path)
    }

    /// Returns all collected files in base64.
    pub fn encoded(&self) -> BTreeMap<String, String> {
        let found = locked(&self.found);
        let encode = |(path, bytes): (&String, &Vec<u8>)| (path.clone(), STANDARD.encode(bytes));
        found.files.iter().map(encode).collect()
    }
}
