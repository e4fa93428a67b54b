//! Prepares environments and names before they are moved into place.

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

/// The interval at which a lock that another process holds is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Waits for an exclusive lock. A process that creates an environment may hold it for an hour. Polls, because `cancel`
/// could not end a wait in the kernel.
///
/// # Errors
/// If it is cancelled, or if the lock cannot be taken.
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

/// A directory in which an environment is created. Dropping it removes the directory.
pub struct Staging {
    /// The directory's path.
    pub path: PathBuf,
    // Marks the directory as in use. A later process removes directories that are not.
    _lock: Option<File>,
}

impl Staging {
    /// Creates the staging directory of an environment.
    ///
    /// # Errors
    /// If it cannot be created.
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
        // Removes nothing if the directory was moved. If this fails, a later process removes it.
        _ = remove_tree(&self.path);
    }
}

/// Writes a name atomically: another process finds the old or the new one.
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
    // Without the lock, another process would remove the file as a leftover.
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
    fn waiting_for_a_lock_can_be_cancelled() {
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
        // A child process of another test may inherit the lock for a moment.
        let other = Cancel::new().unwrap();
        assert!(lock_when_free(&store, "name x", &other).is_ok());
    }
}
