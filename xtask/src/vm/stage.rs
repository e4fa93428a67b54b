//! A staging directory with copies of this machine's files at their own paths, from which an image is made.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use walkdir::WalkDir;

/// The staging directory.
#[derive(Debug)]
pub struct Stage(PathBuf);

impl Stage {
    /// Creates an empty staging directory.
    pub fn begin(directory: &Path) -> Result<Self> {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        let stage = Self(directory.to_owned());
        stage.directory(Path::new("/"), 0o755)?;
        Ok(stage)
    }

    /// Returns the staged location of a path in the guest.
    pub fn inside(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Creates a directory and its parents, which all users may traverse.
    pub fn directory(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let directory = self.inside(path);
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// Writes a file that all users may read.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.inside(path), text)?)
    }

    /// Copies a file with every symlink on its path, so that the guest finds the same file at
    /// `path`.
    pub fn take(&self, path: &Path) -> Result<()> {
        let mut walked = PathBuf::from("/");
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            match component {
                Component::Normal(name) => walked.push(name),
                Component::ParentDir => _ = walked.pop(),
                _ => continue,
            }
            let inside = self.inside(&walked);
            let kind = fs::symlink_metadata(&walked)
                .with_context(|| walked.display().to_string())?
                .file_type();
            if kind.is_symlink() {
                let target = fs::read_link(&walked)?;
                if fs::symlink_metadata(&inside).is_err() {
                    symlink(&target, &inside)?;
                }
                walked.pop();
                let rest: PathBuf = components.collect();
                return self.take(&walked.join(target).join(rest));
            }
            if kind.is_dir() {
                if !inside.exists() {
                    self.directory(&walked, 0o755)?;
                }
            } else if !inside.exists() {
                copy(&walked, &inside)?;
            }
        }
        Ok(())
    }

    /// Copies a directory with everything below it, except names that `is_wanted` rejects.
    pub fn take_tree(&self, path: &Path, is_wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        self.take(path)?;
        let tree = WalkDir::new(fs::canonicalize(path)?).min_depth(1);
        let is_wanted = |name: &std::ffi::OsStr| name.to_str().is_some_and(is_wanted);
        for entry in tree
            .into_iter()
            .filter_entry(|entry| is_wanted(entry.file_name()))
        {
            let entry = entry?;
            let (from, kind, inside) = (entry.path(), entry.file_type(), self.inside(entry.path()));
            // A symlink may be dangling.
            if fs::symlink_metadata(&inside).is_ok() {
                continue;
            }
            if kind.is_dir() {
                self.directory(from, 0o755)?;
            } else if kind.is_symlink() {
                symlink(fs::read_link(from)?, &inside)?;
            } else if kind.is_file() {
                copy(from, &inside)?;
            }
        }
        Ok(())
    }
}

/// Copies a file, as a hard link if possible: the staged file is never written to.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symlinks_on_the_path_are_copied() {
        let host = tempfile::tempdir().expect("a directory");
        let at = |path: &str| host.path().join(path);
        fs::create_dir_all(at("usr/lib")).expect("the directory is created");
        fs::write(at("usr/lib/libz.so.1.2"), "z").expect("written");
        symlink("libz.so.1.2", at("usr/lib/libz.so.1")).expect("linked");
        symlink("usr/lib", at("lib")).expect("linked");

        let place = tempfile::tempdir().expect("a directory");
        let stage = Stage::begin(&place.path().join("stage")).expect("begun");
        stage.take(&at("lib/libz.so.1")).expect("taken");
        let taken = |path: &str| stage.inside(at(path));
        assert_eq!(
            fs::read_link(taken("lib")).expect("a link"),
            Path::new("usr/lib")
        );
        let link = fs::read_link(taken("usr/lib/libz.so.1")).expect("a link");
        assert_eq!(link, Path::new("libz.so.1.2"));
        assert_eq!(
            fs::read_to_string(taken("usr/lib/libz.so.1.2")).expect("read"),
            "z"
        );
    }

    #[test]
    fn tree_is_copied_without_excluded_names() {
        let host = tempfile::tempdir().expect("a directory");
        let at = |path: &str| host.path().join(path);
        fs::create_dir_all(at("lib/site-packages/pip")).expect("the directory is created");
        fs::create_dir_all(at("lib/json")).expect("the directory is created");
        fs::write(at("lib/json/__init__.py"), "").expect("written");
        symlink("nowhere", at("lib/dangling")).expect("linked");

        let place = tempfile::tempdir().expect("a directory");
        let stage = Stage::begin(&place.path().join("stage")).expect("begun");
        let taken = stage.take_tree(&at("lib"), &|name| name != "site-packages");
        taken.expect("taken");
        assert!(stage.inside(at("lib/json/__init__.py")).exists());
        assert!(stage.inside(at("lib/dangling")).is_symlink());
        assert!(!stage.inside(at("lib/site-packages")).exists());
    }
}
