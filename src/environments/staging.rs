//! Where environments and names are made before they are moved to their place.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use super::error::EnvironmentError;
use super::keep::remove_tree;
use crate::host::{EnvironmentStore, NamedEnvironment, Patience, Sharing};
use crate::policy::EnvironmentName;

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
