//! Checks and resolves the paths of a policy lexically. The plan checks whether they exist.

use std::path::{Component, Path, PathBuf};

/// Directories that the sandbox creates. No host path can be shown at or beneath them.
const SYNTHETIC_TREES: &[&str] = &["/dev", "/proc", "/sys"];

/// Directories at which each session has a private file system.
const SESSION_DIRECTORIES: &[&str] = &["/work", "/tmp"];

/// Rejects a text that is not a path.
fn check_text(text: &str) -> Result<(), String> {
    if text.is_empty() || text.contains('\0') {
        return Err(format!(
            "\"{text}\" is not a path: write an absolute path, such as \"/srv/data\""
        ));
    }
    if text == "~" || text.starts_with("~/") {
        return Err(format!(
            "\"{text}\" starts with `~`, which only a shell expands: write out the home directory"
        ));
    }
    Ok(())
}

/// Rejects an absolute path that the sandbox could not show at the same path.
fn check_visible(path: &Path) -> Result<(), String> {
    let shown = path.display();
    if path == Path::new("/") {
        return Err(format!(
            "\"{shown}\" would expose the whole host to the guest: name the directories that it needs"
        ));
    }
    if let Some(tree) = SYNTHETIC_TREES.iter().find(|tree| path.starts_with(tree)) {
        return Err(format!(
            "\"{shown}\" is in the sandbox's own {tree}, which never shows the host's {tree}: remove the path"
        ));
    }
    if SESSION_DIRECTORIES.iter().any(|own| path == Path::new(own)) {
        return Err(format!(
            "\"{shown}\" is the session's own directory in the sandbox: name a directory beneath or next to it"
        ));
    }
    Ok(())
}

/// Removes `.`, repeated slashes and `name/..` lexically. A leading `..` of an absolute path stays at the
/// root, as in the kernel.
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
pub(super) fn host_path(text: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if path.is_absolute() && path.components().any(|part| part == Component::ParentDir) {
        // After a symbolic link, the kernel resolves `..` to another directory than a reader expects.
        return Err(format!(
            "\"{text}\" contains `..`: write the path without it"
        ));
    }
    resolve_visible(text, base)
}

/// Resolves a path that may be relative to `base`, the directory of its policy file.
pub(super) fn resolve(text: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    check_text(text)?;
    let path = Path::new(text);
    let absolute = match base {
        _ if path.is_absolute() => path.to_owned(),
        Some(base) if base.is_absolute() => base.join(path),
        _ => {
            return Err(format!(
                "\"{text}\" is a relative path, but the current directory is unknown: write an absolute path"
            ));
        }
    };
    let normal = normalize(&absolute);
    match normal.to_str() {
        Some(_) => Ok(normal),
        // TOML cannot represent the path.
        None => Err(format!(
            "{} is not UTF-8: rename the directory",
            normal.display()
        )),
    }
}

/// Like `resolve`, for a directory that the guest will see.
pub(super) fn resolve_visible(text: &str, base: Option<&Path>) -> Result<PathBuf, String> {
    let path = resolve(text, base)?;
    check_visible(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests;
