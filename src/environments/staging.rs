//! Where environments and names are made before they are moved to their place.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::error::EnvironmentError;
use super::keep::remove_tree;
use crate::host::{EnvironmentStore, NamedEnvironment, Patience, Sharing};
use crate::policy::EnvironmentName;
use crate::supervisor::Cancel;

/// How often a lock that another process holds is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Takes a lock as soon as no other process holds it. One that makes an environment may hold it for an hour: `cancel`
/// ends the wait, which it could not in the kernel.
///
/// # Errors
/// If it is cancelled, or the lock cannot be taken.
pub fn lock_when_free(
    store: &EnvironmentStore,
    subject: &str,
    cancel: &Cancel,
) -> Result<File, EnvironmentError> {
    loop {
        if let Some(lock) = store.lock(subject, Sharing::Alone, Patience::GivesUp)? {
            return Ok(lock);
        }
        if cancel.is_used() {
            return Err(EnvironmentError::Interrupted);
        }
        thread::sleep(RETRY);
    }
}

/// A directory in which an environment is made. Dropping it removes it.
pub struct Staging {
    /// Where it is.
    pub path: PathBuf,
    // Says that this process is at it. One without a process is removed by the next.
    _lock: Option<File>,
}

impl Staging {
    /// Begins one for an environment.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn begin(store: &EnvironmentStore, key: &str) -> Result<Self, EnvironmentError> {
        let name = format!("{key}.{}", std::process::id());
        let lock = store.lock(&name, Sharing::Alone, Patience::Waits)?;
        let path = store.staging().join(name);
        let made = DirBuilder::new().mode(0o755).create(&path);
        made.map_err(EnvironmentError::io(&path))?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Once it is moved, there is nothing. What cannot be removed is removed by the next.
        _ = remove_tree(&self.path);
    }
}

/// Writes a name at one moment: another process finds the old one or the new one.
///
/// # Errors
/// If it cannot be written.
pub fn write_name(
    store: &EnvironmentStore,
    name: &EnvironmentName,
    named: &NamedEnvironment,
) -> Result<(), EnvironmentError> {
    let path = store.name_file(name);
    let new = store.staging().join(format!("{name}.name"));
    let text = serde_json::to_string_pretty(named).map_err(io::Error::from);
    // Without it, another process would take the file for a left one.
    let _lock = store.lock(&format!("{name}.name"), Sharing::Alone, Patience::Waits)?;
    let write = || {
        let text = text?;
        fs::write(&new, text)?;
        fs::set_permissions(&new, Permissions::from_mode(0o644))?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(EnvironmentError::io(&path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::environments::create::make_store;
    use crate::host::CallerEnvironment;

    #[test]
    fn a_wait_for_another_process_can_be_cancelled() {
        let data = tempfile::tempdir().unwrap();
        let environment = CallerEnvironment::current()
            .changed_by([("XDG_DATA_HOME", Some(data.path().to_str().unwrap()))]);
        let store = EnvironmentStore::of(&environment).unwrap();
        make_store(&store).unwrap();
        let cancel = Cancel::new().unwrap();
        let held = lock_when_free(&store, "name x", &cancel).unwrap();
        cancel.cancel();
        let waited = lock_when_free(&store, "name x", &cancel);
        assert!(matches!(waited, Err(EnvironmentError::Interrupted)));
        drop(held);
        // A process that another test forks may still hold it for a moment.
        let other = Cancel::new().unwrap();
        assert!(lock_when_free(&store, "name x", &other).is_ok());
    }
}
