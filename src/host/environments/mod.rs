//! Reads the store of package environments.
//!
//! An environment is a virtual environment in a directory that is named after a hash of its contents. A name refers to
//! one environment. This module changes nothing: `environments` creates and removes environments.

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

/// The lock subject that stands for all environments.
const ALL: &str = "all";

/// The maximum size of a description in MiB, enough for a lock of thousands of packages.
const MAX_MIB: u64 = 4;

/// The directory of this user's environments. It may not exist.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnvironmentStore {
    directory: PathBuf,
}

/// The environment to which a name refers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NamedEnvironment {
    /// The name of the environment's directory.
    pub environment: String,
    /// The requested packages, one requirement each.
    pub requirements: Vec<String>,
    /// The interpreter for which the environment was requested.
    pub interpreter: PathBuf,
    /// The digest of the package sources, if they were not PyPI alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<SourcesDigest>,
}

/// Whether a lock of the store is shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// Other processes may hold the lock too.
    Shared,
    /// Only one process may hold the lock.
    Alone,
}

/// Whether to wait for a lock that another process holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// Wait until the lock is free.
    Waits,
    /// Do not wait.
    GivesUp,
}

impl EnvironmentStore {
    /// Returns the store that this environment selects: in `XDG_DATA_HOME`; without it, in `/var/lib` for root, and in
    /// `.local/share` of `HOME` for other users.
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

    /// Returns the store of packages that were added to running sessions.
    #[must_use]
    pub fn added(&self) -> Self {
        Self {
            directory: self.directory.join("added"),
        }
    }

    /// Locks all environments of the store against removal. Other processes may hold the same lock.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn hold_all(&self) -> Result<Option<File>, Error> {
        self.lock(ALL, Sharing::Shared, Patience::Waits)
    }

    /// Takes the lock of all environments exclusively. Returns `None` if a process [holds](Self::hold_all) it. Locks of
    /// single environments are independent of it.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn own_all(&self) -> Result<Option<File>, Error> {
        self.lock(ALL, Sharing::Alone, Patience::GivesUp)
    }

    /// Returns the store's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the directory of the environments.
    pub fn environments(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// Returns the directory of an environment.
    pub fn path_of(&self, key: &str) -> PathBuf {
        self.environments().join(key)
    }

    /// Returns the directory of the names.
    pub fn names(&self) -> PathBuf {
        self.directory.join("names")
    }

    /// Returns the directory in which environments are created and deleted.
    pub fn staging(&self) -> PathBuf {
        self.directory.join("staging")
    }

    /// Returns the file of a name.
    pub fn name_file(&self, name: &EnvironmentName) -> PathBuf {
        self.names().join(name.as_str())
    }

    /// Returns the store's directory, if it can be used. The directory may not exist yet.
    ///
    /// # Errors
    /// If the environment selects no directory, or if another user could have changed its contents.
    pub fn usable(environment: &CallerEnvironment) -> Result<PathBuf, Error> {
        let store = Self::of(environment)?;
        if store.directory.exists() {
            store.check()?;
        } else {
            may_be_made(&store.directory)?;
        }
        Ok(store.directory)
    }

    /// Checks that only this user can have changed the store.
    ///
    /// # Errors
    /// If another user can have changed it, or if it does not exist.
    pub fn check(&self) -> Result<(), Error> {
        let found = fs::symlink_metadata(&self.directory);
        let metadata = found.map_err(|cause| io_error(&self.directory, &cause))?;
        // The permissions of the link's target do not show who may replace the link.
        if metadata.is_symlink() {
            return Err(Error::host(format!(
                "{} is a symbolic link, and environments need a directory: replace it with a directory, or set XDG_DATA_HOME",
                self.directory.display()
            )));
        }
        Ok(check_private(&self.directory, &metadata)?)
    }

    /// Returns the environment to which a name refers, if any.
    ///
    /// # Errors
    /// If other users can write to the store, or if Sandfork did not write the file.
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
            return Err(torn(&path, "it does not name an environment"));
        }
        Ok(Some(named))
    }

    /// Returns all names, sorted.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn all_names(&self) -> Result<Vec<EnvironmentName>, Error> {
        let names = Self::entries(&self.names())?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Returns the directory names of all environments, sorted.
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

    /// Returns the description of an environment.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn describe(&self, key: &str) -> Result<String, Error> {
        let path = self.path_of(key).join(DESCRIPTION);
        read(&path).map_err(|cause| io_error(&path, &cause))
    }

    /// Returns the environment of a name, and a lock that keeps it from being removed.
    ///
    /// # Errors
    /// If the environment does not exist.
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
        // The environment may have been removed before it was locked.
        if !path.is_dir() {
            return Err(Error::policy(format!(
                "the environment `{name}` has been removed from {}: make it again with `sandfork env create {name} \
                 PACKAGE...`",
                path.display()
            )));
        }
        Ok((path, lock.unwrap_or_else(|| unreachable!("waited for"))))
    }

    /// Returns the environment to which a name refers.
    ///
    /// # Errors
    /// If the name does not exist. The error lists existing names.
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

    /// Returns some of the names that users gave, for a message.
    fn some_names(&self) -> String {
        let names = self.all_names().unwrap_or_default();
        let names = names.iter().filter(|it| !it.is_of_packages());
        let names: Vec<&str> = names.map(EnvironmentName::as_str).take(8).collect();
        names.join(", ")
    }

    /// Returns the environment with these packages from these sources for an interpreter, and a lock that keeps it from
    /// being removed.
    ///
    /// # Errors
    /// If the environment does not exist.
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

    /// Takes the lock of a subject. Returns `None` if the lock is held and `patience` is
    /// [`GivesUp`](Patience::GivesUp).
    ///
    /// All locks are byte ranges of one file, so no lock files are left behind. Closing the returned file releases the
    /// lock.
    ///
    /// # Errors
    /// If the file cannot be opened, or if the file system does not support locks.
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
            l_start: byte_of(subject),
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

/// Returns the byte of the lock file that stands for a subject.
fn byte_of(subject: &str) -> i64 {
    use sha2::{Digest, Sha256};
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(subject)[..8]);
    // File offsets are not negative, and adding the length must not overflow.
    i64::from_le_bytes(first) & (i64::MAX >> 1)
}

/// Returns whether a text is the directory name of an environment.
fn is_key(text: &str) -> bool {
    text.len() == 32 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

fn read(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    whole_text(file, MAX_MIB)
}
