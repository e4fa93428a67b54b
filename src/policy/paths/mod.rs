//! Paths of a policy, compared and joined as text. The plan checks whether they exist.

use std::path::{Component, Path, PathBuf};

use thiserror::Error;

/// Directories that the sandbox fills itself. No host path can be shown at or beneath them.
const SYNTHETIC_TREES: &[&str] = &["/dev", "/proc", "/sys"];

/// Directories for which each session has a private file system.
const SESSION_DIRECTORIES: &[&str] = &["/work", "/tmp"];

/// Why a text is not a path for a policy.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum PathError {
    /// An empty string or one with a NUL byte.
    #[error("\"{0}\" is not a path: write an absolute path, such as \"/srv/data\"")]
    NotAPath(String),
    /// A path that a shell would expand.
    #[error("\"{0}\" starts with `~`, which is the shell's: write the home directory out")]
    Home(String),
    /// An absolute path with `..` in it. Beside a symbolic link it means another directory to the kernel than
    /// to the eye.
    #[error("\"{0}\" contains `..`: write the path without it")]
    Parent(String),
    /// The root of the host.
    #[error("\"/\" would hand the whole host to the guest: name the directories that it needs")]
    Root,
    /// A directory that the sandbox creates itself.
    #[error(
        "\"{path}\" is in the sandbox's own {tree}, which never shows the host's: remove the path"
    )]
    Synthetic {
        /// The path.
        path: String,
        /// The sandbox's own tree.
        tree: &'static str,
    },
    /// A directory that contains each session's own files.
    #[error(
        "\"{0}\" is the session's own directory in the sandbox: name a directory beneath or beside it"
    )]
    Session(String),
    /// A path that cannot be written in TOML.
    #[error("{} is not UTF-8: rename the directory", .0.display())]
    NotUtf8(PathBuf),
    /// A relative path without a base directory.
    #[error(
        "\"{0}\" is a relative path and the current directory is unknown: write an absolute one"
    )]
    NoBase(String),
}

/// Refuses a text that is not a path.
fn check_text(text: &str) -> Result<(), PathError> {
    if text.is_empty() || text.contains('\0') {
        return Err(PathError::NotAPath(text.to_owned()));
    }
    if text == "~" || text.starts_with("~/") {
        return Err(PathError::Home(text.to_owned()));
    }
    Ok(())
}

/// Refuses an absolute path that the sandbox could not show at the same path.
fn check_place(path: &Path) -> Result<(), PathError> {
    if path == Path::new("/") {
        return Err(PathError::Root);
    }
    if let Some(tree) = SYNTHETIC_TREES.iter().find(|tree| path.starts_with(tree)) {
        return Err(PathError::Synthetic {
            path: path.display().to_string(),
            tree,
        });
    }
    if SESSION_DIRECTORIES.iter().any(|own| path == Path::new(own)) {
        return Err(PathError::Session(path.display().to_string()));
    }
    Ok(())
}

/// Removes `.`, doubled slashes and `name/..`, without reading the file system. A leading `..` of
/// an absolute path stays at the root, as in the kernel.
pub(crate) fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// Resolves the path of a host file or directory that the sandbox can show at the same path.
pub(super) fn host_path(text: &str, base: Option<&Path>) -> Result<PathBuf, PathError> {
    let path = Path::new(text);
    if path.is_absolute() && path.components().any(|part| part == Component::ParentDir) {
        return Err(PathError::Parent(text.to_owned()));
    }
    resolve_visible(text, base)
}

/// Resolves a path that may be relative to `base`, the directory of its policy file.
pub(super) fn resolve(text: &str, base: Option<&Path>) -> Result<PathBuf, PathError> {
    check_text(text)?;
    let path = Path::new(text);
    let absolute = match base {
        _ if path.is_absolute() => path.to_owned(),
        Some(base) if base.is_absolute() => base.join(path),
        _ => return Err(PathError::NoBase(text.to_owned())),
    };
    let normal = normalize(&absolute);
    match normal.to_str() {
        Some(_) => Ok(normal),
        None => Err(PathError::NotUtf8(normal)),
    }
}

/// Like `resolve`, for a directory that the guest will see.
pub(super) fn resolve_visible(text: &str, base: Option<&Path>) -> Result<PathBuf, PathError> {
    let path = resolve(text, base)?;
    check_place(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests;
