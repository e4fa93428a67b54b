//! Where environments of packages are kept, and what there is.
//!
//! An environment is a virtual environment in a directory whose name says what is in it. A name leads to one. Nothing
//! here changes anything: `environments` makes and removes them.

mod configuration;
mod error;
mod pip_config;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

pub use self::configuration::pip_config;
use self::error::io_error;
pub use self::error::torn;
pub use self::pip_config::{PYPI, PipConfig};
use super::CallerEnvironment;
use super::ownership::{check_private, may_be_made};
use super::shell_word::quoted;
use super::whole_text::whole_text;
use crate::error::{Error, ErrorKind};
use crate::policy::{EnvironmentName, Requirement, SourcesDigest};

/// The file in an environment that describes it.
pub const DESCRIPTION: &str = "environment.json";

/// The subject of a lock that stands for all environments.
const ALL: &str = "all";

/// A description has at most so many MiB: a lock of thousands of packages.
const MOST_MIB: u64 = 4;

/// The directory of this user's environments. It may not exist.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnvironmentStore {
    directory: PathBuf,
}

/// What a name stands for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NamedEnvironment {
    /// The directory's name, beneath those of all environments.
    pub environment: String,
    /// What was asked for, a line each.
    pub requirements: Vec<String>,
    /// The interpreter that it was asked for.
    pub interpreter: PathBuf,
    /// Where its packages came from, if that was not PyPI alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<SourcesDigest>,
}

/// Whether a lock of the store can be shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// Others may hold it too.
    Shared,
    /// Only one process holds it.
    Alone,
}

/// Whether a process waits for a lock that another one holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// It waits until the lock is free.
    Waits,
    /// It does not wait.
    GivesUp,
}

impl EnvironmentStore {
    /// The store that this environment names: in `XDG_DATA_HOME`, without it `/var/lib` for root, and `.local/share` in
    /// `HOME` for others.
    pub fn of(environment: &CallerEnvironment) -> Result<Self, Error> {
        let set = |name| {
            let value = environment.text(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let data = match set("XDG_DATA_HOME") {
            Some(data) => data,
            None if geteuid().is_root() => "/var/lib".into(),
            None => {
                let nowhere = "neither XDG_DATA_HOME nor HOME is an absolute path: set one to a directory of this user, for \
                               environments";
                let home = set("HOME").ok_or_else(|| Error::host(nowhere))?;
                home.join(".local/share")
            }
        };
        Ok(Self {
            directory: data.join("sandfork/environments"),
        })
    }

    /// The store of the packages that were added to running sessions.
    #[must_use]
    pub fn added(&self) -> Self {
        Self {
            directory: self.directory.join("added"),
        }
    }

    /// Keeps all environments of the store from being removed.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn hold_all(&self) -> Result<Option<File>, Error> {
        self.lock(ALL, Sharing::Shared, Patience::Waits)
    }

    /// Whether nothing holds all environments of the store. Nothing does while the lock is held.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn own_all(&self) -> Result<Option<File>, Error> {
        self.lock(ALL, Sharing::Alone, Patience::GivesUp)
    }

    /// The whole store.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the environments are.
    pub fn environments(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// Where an environment is.
    pub fn path_of(&self, key: &str) -> PathBuf {
        self.environments().join(key)
    }

    /// Where the names are.
    pub fn names(&self) -> PathBuf {
        self.directory.join("names")
    }

    /// Where environments are made and taken apart.
    pub fn staging(&self) -> PathBuf {
        self.directory.join("staging")
    }

    /// The file of a name.
    pub fn name_file(&self, name: &EnvironmentName) -> PathBuf {
        self.names().join(name.as_str())
    }

    /// The directory of the environments, or why none can be used. It may not be there yet.
    ///
    /// # Errors
    /// If the environment names none, or another user can have made what is in it.
    pub fn usable(environment: &CallerEnvironment) -> Result<PathBuf, Error> {
        let store = Self::of(environment)?;
        if store.directory.exists() {
            store.check()?;
        } else {
            may_be_made(&store.directory)?;
        }
        Ok(store.directory)
    }

    /// Checks that this user alone can have made what is in it.
    ///
    /// # Errors
    /// If another user can have, or it is not there.
    pub fn check(&self) -> Result<(), Error> {
        let found = fs::symlink_metadata(&self.directory);
        let metadata = found.map_err(|cause| io_error(&self.directory, &cause))?;
        // Who may write to the directory that it leads to says nothing of who may replace the link.
        if metadata.is_symlink() {
            return Err(Error::host(format!(
                "{} is a symbolic link, and environments need a directory: put one in its place, or set XDG_DATA_HOME",
                self.directory.display()
            )));
        }
        Ok(check_private(&self.directory, &metadata)?)
    }

    /// What a name stands for, if it stands for anything.
    ///
    /// # Errors
    /// If the store is not this user's alone, or the file is not one that Sandfork wrote.
    pub fn read_name(&self, name: &EnvironmentName) -> Result<Option<NamedEnvironment>, Error> {
        let path = self.name_file(name);
        let text = match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|cause| io_error(&path, &cause))?,
        };
        self.check()?;
        let named: NamedEnvironment =
            serde_json::from_str(&text).map_err(|error| torn(&path, &error.to_string()))?;
        if !is_key(&named.environment) {
            return Err(torn(&path, "it names no environment"));
        }
        Ok(Some(named))
    }

    /// All names, in their order.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn all_names(&self) -> Result<Vec<EnvironmentName>, Error> {
        let names = Self::entries(&self.names())?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// All environments, by the names of their directories.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn all_environments(&self) -> Result<Vec<String>, Error> {
        let mut found = Self::entries(&self.environments())?;
        found.retain(|key| is_key(key));
        Ok(found)
    }

    fn entries(directory: &Path) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|cause| io_error(directory, &cause))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|cause| io_error(directory, &cause))?;
            names.extend(entry.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    /// The description of an environment.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn describe(&self, key: &str) -> Result<String, Error> {
        let path = self.path_of(key).join(DESCRIPTION);
        read(&path).map_err(|cause| io_error(&path, &cause))
    }

    /// The environment of a name, which nothing removes while the lock is held.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, name: &EnvironmentName) -> Result<(PathBuf, File), Error> {
        let Some(named) = self.read_name(name)? else {
            let others = match &*self.some_names() {
                "" => String::new(),
                names => format!(" (there is {names})"),
            };
            return Err(Error::policy(format!(
                "there is no environment `{name}`{others}: make it with `sandfork env create {name} PACKAGE...`"
            )));
        };
        let lock = self.lock(&named.environment, Sharing::Shared, Patience::Waits)?;
        let path = self.path_of(&named.environment);
        // It may have been removed before it was locked.
        if !path.is_dir() {
            return Err(Error::policy(format!(
                "the environment `{name}` has been removed from {}: make it again with `sandfork env create {name} \
                 PACKAGE...`",
                path.display()
            )));
        }
        Ok((path, lock.unwrap_or_else(|| unreachable!("waited for"))))
    }

    /// What a name stands for.
    ///
    /// # Errors
    /// If it stands for nothing. The error names others.
    pub fn existing(&self, name: &EnvironmentName) -> Result<NamedEnvironment, Error> {
        self.read_name(name)?.ok_or_else(|| {
            let others = match &*self.some_names() {
                "" => "no environment has a name".to_owned(),
                names => format!("there is {names}; `sandfork env list` describes them"),
            };
            let sentence = format!("there is no environment `{name}`: {others}");
            Error::new(ErrorKind::Request, sentence)
        })
    }

    /// Some of the names that people gave, for a sentence.
    fn some_names(&self) -> String {
        let names = self.all_names().unwrap_or_default();
        let names = names.iter().filter(|it| !it.is_of_packages());
        let names: Vec<&str> = names.map(EnvironmentName::as_str).take(8).collect();
        names.join(", ")
    }

    /// The environment with these packages of these sources for the interpreter at this path, which nothing removes while
    /// the lock is held.
    ///
    /// # Errors
    /// If there is none.
    pub fn find_packages(
        &self,
        packages: &[Requirement],
        interpreter: &Path,
        sources: Option<&SourcesDigest>,
    ) -> Result<(PathBuf, File), Error> {
        let binary = fs::canonicalize(interpreter);
        let binary = binary.map_err(|cause| io_error(interpreter, &cause))?;
        let name = EnvironmentName::of_packages(packages, &binary, sources);
        self.find(&name).map_err(|error| match error {
            missing if missing.kind() == ErrorKind::Policy => {
                let list: Vec<String> = packages.iter().map(ToString::to_string).collect();
                let words: Vec<String> = list.iter().map(|package| quoted(package)).collect();
                let interpreter = interpreter.display().to_string();
                Error::policy(format!(
                    "the packages {} are not installed for {interpreter}: `sandfork env create --packages --python {} {}` \
                     installs them, or let a first use do it with `--set environments.create=true`",
                    list.join(", "),
                    quoted(&interpreter),
                    words.join(" ")
                ))
            }
            error => error,
        })
    }

    /// Takes the lock of this subject. `None` if it is taken and not waited for.
    ///
    /// All locks are bytes of one file, so that none is left behind. Closing the file gives it back.
    ///
    /// # Errors
    /// If the file cannot be opened, or the file system has no locks.
    pub fn lock(
        &self,
        subject: &str,
        sharing: Sharing,
        patience: Patience,
    ) -> Result<Option<File>, Error> {
        let path = self.directory.join("locks");
        let io = |cause: io::Error| io_error(&path, &cause);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path);
        let file = file.map_err(io)?;
        let kind = match sharing {
            Sharing::Shared => libc::F_RDLCK,
            Sharing::Alone => libc::F_WRLCK,
        };
        let byte = libc::flock {
            l_type: libc::c_short::try_from(kind).unwrap_or_default(),
            l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
            l_start: place_of(subject),
            l_len: 1,
            l_pid: 0,
        };
        loop {
            let request = match patience {
                Patience::Waits => FcntlArg::F_OFD_SETLKW(&byte),
                Patience::GivesUp => FcntlArg::F_OFD_SETLK(&byte),
            };
            match fcntl(&file, request) {
                Ok(_) => return Ok(Some(file)),
                Err(Errno::EAGAIN | Errno::EACCES) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(io(errno.into())),
            }
        }
    }
}

/// The byte that stands for a subject.
fn place_of(subject: &str) -> i64 {
    use sha2::{Digest, Sha256};
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(subject)[..8]);
    // A file has offsets of 63 bits.
    i64::from_le_bytes(first) & (i64::MAX >> 1)
}

/// Whether a text names the directory of an environment.
fn is_key(text: &str) -> bool {
    text.len() == 32 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

fn read(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    whole_text(file, MOST_MIB)
}
