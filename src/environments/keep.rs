//! Describes, lists and removes environments.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::EnvironmentError;
use super::lock::Lock;
use super::tree::set_directories;
use crate::host::{EnvironmentStore, NamedEnvironment, Patience, Sharing, torn};
use crate::policy::EnvironmentName;

/// The description that is stored in an environment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Description {
    /// The interpreter's binary.
    pub interpreter: PathBuf,
    /// The interpreter's version.
    pub version: String,
    /// The total size of the files in bytes.
    pub bytes: u64,
    /// The creation time, in seconds since 1970.
    pub created: u64,
    /// The environment's wheels.
    pub lock: Lock,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pruned {
    /// The number of environments.
    pub environments: usize,
    /// The total size of their files in bytes.
    pub bytes: u64,
}

/// Which environments are removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Those without a name.
    Unnamed,
    /// Also those made for `python.packages` of policies.
    OfPackages,
}

/// Returns the description of an environment.
///
/// # Errors
/// If it does not exist, or its description is corrupt.
pub fn description(store: &EnvironmentStore, key: &str) -> Result<Description, EnvironmentError> {
    let text = store.describe(key)?;
    let read = serde_json::from_str(&text);
    read.map_err(|error: serde_json::Error| torn(&store.path_of(key), &error.to_string()).into())
}

/// Returns all names, with the environment of each.
///
/// # Errors
/// If the store cannot be read.
pub fn names_of(
    store: &EnvironmentStore,
) -> Result<Vec<(EnvironmentName, NamedEnvironment)>, EnvironmentError> {
    let mut names = Vec::new();
    for name in store.all_names()? {
        // The name may have been removed meanwhile.
        names.extend(store.read_name(&name)?.map(|named| (name, named)));
    }
    Ok(names)
}

/// Removes a name, and its environment if no other name refers to it.
///
/// # Errors
/// If the name does not exist, or if a sandbox uses the environment.
pub fn remove(store: &EnvironmentStore, name: &EnvironmentName) -> Result<(), EnvironmentError> {
    let named = store.existing(name)?;
    let key = &named.environment;
    let alone = store.lock(key, Sharing::Alone, Patience::GivesUp)?;
    // Checked under the lock, because names are assigned under it.
    let others = names_of(store)?
        .into_iter()
        .any(|(other, of)| other != *name && of.environment == *key);
    if alone.is_none() && !others {
        return Err(EnvironmentError::Request(format!(
            "the environment `{name}` is used by a sandbox, or kept by a process for its next one: end it first"
        )));
    }
    let path = store.name_file(name);
    fs::remove_file(&path).map_err(EnvironmentError::io(&path))?;
    if !others {
        discard(store, key)?;
    }
    Ok(())
}

/// Removes unnamed environments and the remains of aborted processes. Environments in use stay.
///
/// # Errors
/// If the store cannot be changed.
pub fn prune(store: &EnvironmentStore, extent: Extent) -> Result<Pruned, EnvironmentError> {
    if !store.directory().exists() {
        return Ok(Pruned::default());
    }
    store.check()?;
    sweep(store)?;
    // Sessions to which packages can be added may use any added environment.
    let Some(_all) = store.own_all()? else {
        return Ok(Pruned::default());
    };
    if extent == Extent::OfPackages {
        for (name, named) in names_of(store)? {
            let is_free = || store.lock(&named.environment, Sharing::Alone, Patience::GivesUp);
            if name.is_of_packages() && is_free()?.is_some() {
                let path = store.name_file(&name);
                fs::remove_file(&path).map_err(EnvironmentError::io(&path))?;
            }
        }
    }
    let mut pruned = Pruned::default();
    for key in store.all_environments()? {
        let Some(_alone) = store.lock(&key, Sharing::Alone, Patience::GivesUp)? else {
            continue;
        };
        // Checked under the lock, because names are assigned under it.
        if names_of(store)?
            .iter()
            .any(|(_, named)| named.environment == key)
        {
            continue;
        }
        let bytes = description(store, &key).map_or(0, |it| it.bytes);
        discard(store, &key)?;
        pruned.environments += 1;
        pruned.bytes += bytes;
    }
    Ok(pruned)
}

/// Removes an environment. Moves it away first, so that it is either complete or absent.
fn discard(store: &EnvironmentStore, key: &str) -> Result<(), EnvironmentError> {
    let path = store.path_of(key);
    let aside = store.staging().join(format!("{key}.removed"));
    let removed = fs::set_permissions(&path, Permissions::from_mode(0o755))
        .and_then(|()| fs::rename(&path, &aside))
        .and_then(|()| remove_tree(&aside));
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(EnvironmentError::io(&path)(error))
        }
        _ => Ok(()),
    }
}

/// Removes the remains of creations and removals that were aborted.
pub(super) fn sweep(store: &EnvironmentStore) -> Result<(), EnvironmentError> {
    let directory = store.staging();
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(EnvironmentError::io(&directory))?,
    };
    for entry in entries {
        let entry = entry.map_err(EnvironmentError::io(&directory))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // A process that is still at work holds the entry's lock.
        let Some(_alone) = store.lock(&name, Sharing::Alone, Patience::GivesUp)? else {
            continue;
        };
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_directory {
            remove_tree(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(EnvironmentError::io(&path))?;
    }
    Ok(())
}

/// Removes a tree whose directories are read-only.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match set_directories(path, 0o755).and_then(|()| fs::remove_dir_all(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
