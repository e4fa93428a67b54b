//! Builds wheels from source distributions in a separate sandbox, because their code runs.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::error::EnvironmentError;
use super::explain::plain;
use super::jail::InstallJail;
use super::lock::{LockedWheel, Source, wrong};
use super::place::file_url;
use crate::plan::bytes;
use crate::policy::hexadecimal;
use crate::supervisor::files::{GuestPath, WorkDir};
use crate::waiters::lock;
use sandfork_jail::sys::write_signals;

/// The name of a built wheel in its sandbox.
const BUILT: &str = "built.whl";

/// The maximum size of a wheel that is copied out.
const MAX_BYTES: u64 = 2 << 30;

/// The SHA-256 of a wheel that was copied out of a sandbox.
type Taken = Arc<Mutex<Option<io::Result<String>>>>;

/// Replaces each source distribution by a wheel that is built from it, in this directory.
///
/// Each wheel is built in a fresh worker. The wheel's hash covers every change that the code makes to it, and thus the
/// environment's directory name does too.
///
/// # Errors
/// If a wheel cannot be built.
pub fn build_sources(
    jail: &InstallJail,
    mut found: Vec<LockedWheel>,
    directory: &Path,
) -> Result<Vec<LockedWheel>, EnvironmentError> {
    for package in found.iter_mut().filter(|package| !package.is_wheel()) {
        package.check_package().map_err(EnvironmentError::Lock)?;
        let taken = Taken::default();
        let into = directory.join(BUILT);
        let (slot, place) = (Arc::clone(&taken), into.clone());
        let requirement = format!(
            "{} @ {}#sha256={}",
            package.name, package.url, package.sha256
        );
        let name = jail.build(&requirement, move |work| {
            let mut slot = lock(&slot);
            *slot = Some(take_out(work, &place));
        })?;
        let taken = lock(&taken).take();
        let sha256 = match taken {
            Some(taken) => taken.map_err(EnvironmentError::io(&into))?,
            None => return Err(unnamed(package)),
        };
        // The guest chose the name, which becomes a file name.
        let is_file_name = |c: char| c.is_ascii_alphanumeric() || "._-+!".contains(c);
        if !name.chars().all(is_file_name) || name.strip_suffix(".whl").is_none() {
            return Err(unnamed(package));
        }
        let file = directory.join(&name);
        fs::rename(&into, &file).map_err(EnvironmentError::io(&file))?;
        let url = std::mem::replace(&mut package.url, file_url(&file));
        package.source = Some(Source {
            url,
            sha256: std::mem::replace(&mut package.sha256, sha256),
        });
    }
    Ok(found)
}

fn unnamed(package: &LockedWheel) -> EnvironmentError {
    EnvironmentError::Lock(wrong(&plain(&package.name), "built no wheel"))
}

/// Copies the built wheel out, and returns its hash.
fn take_out(work: &WorkDir, into: &Path) -> io::Result<String> {
    let path = GuestPath::of_file(BUILT).map_err(io::Error::other)?;
    let (file, _) = work.open_read(&path).map_err(io::Error::other)?;
    copy_whole(file, File::create_new(into)?, MAX_BYTES)
}

/// Copies a file of at most `most` bytes, and returns its hash.
fn copy_whole(file: impl Read, mut copy: impl Write, most: u64) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut left = most;
    // One byte more than allowed reveals a larger file.
    let mut file = file.take(most + 1);
    let mut chunk = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        left = left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::other(format!("the wheel is larger than {}", bytes(most))))?;
        digest.update(&chunk[..read]);
        write_signals::as_errors(|| copy.write_all(&chunk[..read]))?;
    }
    Ok(hexadecimal(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_wheel_is_rejected() {
        let copied = |file: &[u8], most| {
            let mut copy = Vec::new();
            let hash = copy_whole(file, &mut copy, most).map_err(|error| error.to_string())?;
            assert_eq!(copy, file);
            Ok::<String, String>(hash)
        };
        let wheel = vec![7; 100_000];
        let hash = hexadecimal(&Sha256::digest(&wheel));
        assert_eq!(copied(&wheel, 100_000), Ok(hash));
        let refused = "the wheel is larger than 97.65 KiB".to_owned();
        assert_eq!(copied(&wheel, 99_999), Err(refused));
    }
}
