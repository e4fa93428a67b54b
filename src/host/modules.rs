//! Finds the Python modules in a directory, by the rules of `importlib.machinery.FileFinder`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the file that an import of this path without its suffix runs: that of a package, or of a module. A directory
/// without `__init__` has none, because any other module of its name takes precedence.
pub fn module_at(path: &Path) -> Option<PathBuf> {
    let (directory, name) = (path.parent()?, path.file_name()?);
    file_of(path, OsStr::new("__init__")).or_else(|| file_of(directory, name))
}

/// Returns a module's file in a directory. The tag that an extension module's name carries for its interpreter is
/// ignored.
fn file_of(directory: &Path, name: &OsStr) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    let mut files = entries.flatten().map(|entry| entry.file_name());
    let found = files.find(|file| module_name(file).is_some_and(|module| module == name))?;
    Some(directory.join(found))
}

/// Returns the name of the module that a file of this name would define, if any.
pub fn module_name(file: &OsStr) -> Option<&OsStr> {
    let bytes = file.as_bytes();
    let dot = bytes.iter().position(|byte| *byte == b'.')?;
    let (name, suffix) = bytes.split_at(dot);
    let is_module = [&b".py"[..], b".pyc"].contains(&suffix) || suffix.ends_with(b".so");
    is_module.then(|| OsStr::from_bytes(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_and_modules_have_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for file in [
            "pkg/__init__.py",
            "plain.py",
            "ext.cpython-313-x86_64-linux-gnu.so",
            "notes.txt",
        ] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "").unwrap();
        }
        fs::create_dir(at("data")).unwrap();
        assert_eq!(module_at(&at("pkg")), Some(at("pkg/__init__.py")));
        assert_eq!(module_at(&at("plain")), Some(at("plain.py")));
        let found = module_at(&at("ext"));
        assert_eq!(found, Some(at("ext.cpython-313-x86_64-linux-gnu.so")));
        for none in ["data", "notes", "missing", "missing/deeper"] {
            assert_eq!(module_at(&at(none)), None, "{none}");
        }
    }

    #[test]
    fn only_module_files_have_a_module_name() {
        assert_eq!(module_name(OsStr::new("code.py")), Some(OsStr::new("code")));
        assert_eq!(module_name(OsStr::new("code.json")), None);
        assert_eq!(module_name(OsStr::new("code")), None);
    }
}
