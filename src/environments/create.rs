//! Creates an environment: resolves its packages, installs them, and moves the result into place atomically.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::build::build_sources;
use super::error::EnvironmentError;
use super::index::Access;
use super::jail::{Builds, InstallJail};
use super::keep::{Description, sweep};
use super::lock::{InterpreterBuild, Lock};
use super::requirements::Wanted;
use super::resolver::Resolver;
use super::sources::Sources;
use super::staging::{Staging, lock_when_free, write_name};
use super::tree::{Tree, set_directories};
use crate::error::Error;
use crate::host::{
    CallerEnvironment, DESCRIPTION, EnvironmentStore, Interpreter, NamedEnvironment, Patience,
    Sharing, may_be_made, probe_interpreter, resolve_interpreter,
};
use crate::policy::{EnvironmentName, Requirement};
use crate::supervisor::Cancel;

/// An environment to create.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The environment's name. Without one, the name is derived from the packages.
    pub name: Option<EnvironmentName>,
    /// The packages as a policy could name them, if no files are involved.
    pub packages: Vec<Requirement>,
    /// The requested packages.
    pub wanted: Wanted,
    /// The interpreter, in the syntax of `python.interpreter`.
    pub interpreter: String,
    /// The index that replaces the configured one.
    pub index: Option<String>,
    /// Further hosts from which the index serves files.
    pub allowed: Vec<String>,
    /// Whether source distributions are built.
    pub builds: Builds,
    /// Which of the packages the environment contains.
    pub layer: Layer,
}

/// Which of the needed packages an environment contains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layer {
    /// All of them.
    Whole,
    /// Those that its interpreter's environment lacks, for running sessions.
    Added,
}

/// An environment that exists.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Made {
    /// The environment's name.
    pub name: EnvironmentName,
    /// The environment's directory.
    pub path: PathBuf,
    /// How much of it existed before.
    pub found: Found,
}

/// What existed before an environment was created.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found {
    /// The environment, under this name.
    Whole,
    /// The same wheels, under another name.
    Wheels,
    /// Nothing.
    Nothing,
}

/// The progress of a creation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step<'a> {
    /// Another process is creating the same environment.
    Waiting,
    /// This program is resolving the packages.
    Resolving(&'a Resolver),
    /// A wheel is being installed.
    Installing {
        /// The wheel's file name.
        file: &'a str,
        /// The wheel's number, from 0.
        number: usize,
        /// The number of wheels.
        count: usize,
    },
}

/// Creates an environment, or finds an existing one.
///
/// Concurrent calls create it only once: the second waits for the first. A failed or cancelled call leaves nothing
/// behind.
///
/// # Errors
/// If the environment cannot be created.
pub fn create(
    creation: &Creation,
    environment: &CallerEnvironment,
    cancel: &Cancel,
    progress: &mut dyn FnMut(Step),
) -> Result<Made, EnvironmentError> {
    if creation.wanted.lines.is_empty() {
        let nothing = "an environment needs a package: name one, or a file with `-r` or `--lock`";
        return Err(EnvironmentError::Request(nothing.to_owned()));
    }
    let path = resolve_interpreter(&creation.interpreter, environment)?;
    let interpreter = probe_interpreter(&path, environment)?;
    let binary =
        fs::canonicalize(&interpreter.binary).map_err(EnvironmentError::io(&interpreter.binary))?;
    let sources = Sources::of(creation, environment, &interpreter);
    let name = name_of(creation, &sources, &interpreter, &binary)?;
    let store = EnvironmentStore::of(environment)?;
    let store = match creation.layer {
        Layer::Whole => store,
        Layer::Added => store.added(),
    };
    make_store(&store)?;
    let subject = format!("name {name}");
    let mut lock = store.lock(&subject, Sharing::Alone, Patience::GivesUp)?;
    if lock.is_none() {
        progress(Step::Waiting);
        lock = Some(lock_when_free(&store, &subject, cancel)?);
    }
    let creating = Creating {
        store: &store,
        binary: &binary,
        interpreter: &interpreter,
        named: NamedEnvironment {
            environment: String::new(),
            requirements: creation.wanted.as_lines(),
            interpreter: binary.clone(),
            sources: sources.digest(creation),
        },
        name: name.clone(),
    };
    if let Some(made) = creating.existing()? {
        return Ok(made);
    }
    sweep(&store)?;
    let mut access = sources.access(creation, environment)?;
    let resolver = Resolver::of(creation, environment)?;
    let jail_for = |builds, access: &Access| {
        let access = access.clone();
        InstallJail::new(&interpreter, builds, &resolver, access, environment, cancel)
    };
    let mut jail = jail_for(creation.builds, &access)?;
    progress(Step::Resolving(&resolver));
    let mut found = jail.resolve(&creation.wanted, creation.layer)?;
    let mut built = None;
    if creation.builds == Builds::Allowed {
        let directory = Staging::begin(&store, &format!("{name}.built"))?;
        found = build_sources(&jail, found, &directory.path)?;
        // Package code has run in this sandbox, so another sandbox installs.
        access.directories.push(directory.path.clone());
        jail = jail_for(Builds::Refused, &access)?;
        built = Some(directory);
    }
    let lock_of_wheels = Lock::new(found).map_err(EnvironmentError::Lock)?;
    let made = creating.install(&jail, &lock_of_wheels, progress);
    drop((built, lock));
    made
}

/// Returns the environment's name: the chosen one, or one derived from its packages.
fn name_of(
    creation: &Creation,
    sources: &Sources,
    interpreter: &Interpreter,
    binary: &Path,
) -> Result<EnvironmentName, EnvironmentError> {
    let Some(name) = &creation.name else {
        // An added environment also depends on the installed packages.
        let (interpreter, others): (&Path, &[String]) = match creation.layer {
            Layer::Added => (&interpreter.executable, &creation.wanted.constraints),
            Layer::Whole => (binary, &[]),
        };
        let sources = sources.name();
        let name = EnvironmentName::of_packages(&creation.packages, interpreter, sources.as_ref());
        return Ok(name.beside(others));
    };
    if name.is_of_packages() {
        let reserved = "names that begin with `packages-` belong to the packages of policies: choose another name";
        return Err(EnvironmentError::Request(reserved.to_owned()));
    }
    Ok(name.clone())
}

/// Creates the directories of a store, readable for others: root's guests run as another user.
///
/// # Errors
/// If they cannot be created, or if another user can change their contents.
pub fn make_store(store: &EnvironmentStore) -> Result<(), EnvironmentError> {
    may_be_made(store.directory()).map_err(Error::from)?;
    for directory in [store.environments(), store.names(), store.staging()] {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&directory);
        made.map_err(EnvironmentError::io(&directory))?;
    }
    Ok(store.check()?)
}

/// An environment that is being created.
struct Creating<'a> {
    store: &'a EnvironmentStore,
    binary: &'a Path,
    interpreter: &'a Interpreter,
    named: NamedEnvironment,
    name: EnvironmentName,
}

impl Creating<'_> {
    /// Returns the environment of this name, if it exists and was created from the same request.
    fn existing(&self) -> Result<Option<Made>, EnvironmentError> {
        let Some(named) = self.store.read_name(&self.name)? else {
            return Ok(None);
        };
        let path = self.store.path_of(&named.environment);
        if !path.is_dir() {
            return Ok(None);
        }
        let name = &self.name;
        let is_same = named.requirements == self.named.requirements
            && named.interpreter == self.named.interpreter;
        let is_of_same = named.sources == self.named.sources;
        if name.is_of_packages() && !(is_same && is_of_same) {
            // The name is derived, so it may be reassigned to the new environment.
            return Ok(None);
        }
        if is_same && !is_of_same {
            return Err(EnvironmentError::Request(format!(
                "the environment `{name}` has these packages from another index, or by other options of it, than are set \
                 now: choose another name, or remove it with `sandfork env remove {name}`"
            )));
        }
        if !is_same {
            return Err(EnvironmentError::Request(format!(
                "the environment `{name}` has other packages ({} for {}): choose another name, or remove it with `sandfork \
                 env remove {name}`",
                named.requirements.join(", "),
                named.interpreter.display()
            )));
        }
        Ok(Some(self.made(&named.environment, Found::Whole)))
    }

    fn made(&self, key: &str, found: Found) -> Made {
        Made {
            name: self.name.clone(),
            path: self.store.path_of(key),
            found,
        }
    }

    fn install(
        self,
        jail: &InstallJail,
        lock: &Lock,
        progress: &mut dyn FnMut(Step),
    ) -> Result<Made, EnvironmentError> {
        let size = fs::metadata(self.binary)
            .map_err(EnvironmentError::io(self.binary))?
            .len();
        let version = version_text(self.interpreter);
        let key = lock.key(&InterpreterBuild {
            binary: self.binary,
            version: &version,
            size,
        });
        // Another name may have the same wheels: only one process at a time creates them.
        let _alone = lock_when_free(self.store, &format!("making {key}"), &jail.cancel)?;
        // Keeps the environment from being removed before it has a name.
        let held = self.store.lock(&key, Sharing::Shared, Patience::Waits)?;
        let path = self.store.path_of(&key);
        let found = if path.is_dir() {
            Found::Wheels
        } else {
            self.make(jail, lock, &key, progress)?;
            Found::Nothing
        };
        let made = self.made(&key, found);
        write_name(
            self.store,
            &self.name,
            &NamedEnvironment {
                environment: key,
                ..self.named
            },
        )?;
        drop(held);
        Ok(made)
    }

    fn make(
        &self,
        jail: &InstallJail,
        lock: &Lock,
        key: &str,
        progress: &mut dyn FnMut(Step),
    ) -> Result<(), EnvironmentError> {
        let staging = Staging::begin(self.store, key)?;
        let path = self.store.path_of(key);
        let count = lock.wheels().len();
        let prefix = path.display().to_string();
        let mut begun = |number: usize| {
            let file = &lock.wheels()[number].file;
            progress(Step::Installing {
                file,
                number,
                count,
            });
        };
        let bytes = jail.install(
            lock,
            &prefix,
            self.interpreter,
            Tree::new(staging.path.clone()),
            &mut begun,
        )?;
        let finished = self.finish(&staging.path, lock, bytes);
        finished.map_err(EnvironmentError::io(&staging.path))?;
        let moved = fs::rename(&staging.path, &path).and_then(|()| {
            // A directory must be writable to be moved. Guests see it read-only in any case.
            fs::set_permissions(&path, Permissions::from_mode(0o555))
        });
        moved.map_err(EnvironmentError::io(&path))
    }

    /// Adds the files of a virtual environment, and makes everything read-only.
    fn finish(&self, root: &Path, lock: &Lock, bytes: u64) -> io::Result<()> {
        let (major, minor, _) = self.interpreter.version;
        let version = version_text(self.interpreter);
        let home = self.binary.parent().unwrap_or(Path::new("/"));
        let config = format!(
            "home = {}\ninclude-system-site-packages = false\nversion = {version}\n",
            home.display()
        );
        fs::create_dir_all(root.join(format!("lib/python{major}.{minor}/site-packages")))?;
        fs::create_dir_all(root.join("bin"))?;
        let links = [
            ("bin/python", self.binary),
            ("bin/python3", Path::new("python")),
            (&*format!("bin/python{major}.{minor}"), Path::new("python")),
            ("lib64", Path::new("lib")),
        ];
        for (link, target) in links {
            symlink(target, root.join(link))?;
        }
        fs::write(root.join("pyvenv.cfg"), config)?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH);
        let description = Description {
            interpreter: self.binary.to_owned(),
            version,
            bytes,
            created: created.map_or(0, |time| time.as_secs()),
            lock: lock.clone(),
        };
        let description = serde_json::to_string_pretty(&description).map_err(io::Error::from)?;
        fs::write(root.join(DESCRIPTION), description)?;
        for own in ["pyvenv.cfg", DESCRIPTION] {
            fs::set_permissions(root.join(own), Permissions::from_mode(0o444))?;
        }
        set_directories(root, 0o555)?;
        fs::set_permissions(root, Permissions::from_mode(0o755))?;
        // Sync, so that the environment is complete under its name even after a power failure.
        nix::unistd::syncfs(File::open(root)?)?;
        Ok(())
    }
}

fn version_text(interpreter: &Interpreter) -> String {
    let (major, minor, patch) = interpreter.version;
    format!("{major}.{minor}.{patch}")
}
