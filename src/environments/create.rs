//! Makes an environment: resolves, installs, and moves it into its place at one moment.

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

/// An environment to make.
#[derive(Clone, Debug)]
pub struct Creation {
    /// Its name; without one it is that of the packages.
    pub name: Option<EnvironmentName>,
    /// The packages that a policy could name, if it has no files.
    pub packages: Vec<Requirement>,
    /// What it is to have.
    pub wanted: Wanted,
    /// The interpreter, as `python.interpreter` names one.
    pub interpreter: String,
    /// The index in place of the configured one.
    pub index: Option<String>,
    /// Hosts that the index sends to.
    pub allowed: Vec<String>,
    /// Whether source distributions are built.
    pub builds: Builds,
    /// What it has of what it needs.
    pub layer: Layer,
}

/// What an environment has of what it needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layer {
    /// All of it.
    Whole,
    /// What the environment of its interpreter lacks, for sessions that run there.
    Added,
}

/// An environment that there is now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Made {
    /// Its name.
    pub name: EnvironmentName,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it was there.
    pub found: Found,
}

/// What was there before an environment was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found {
    /// The environment, under this name.
    Whole,
    /// The same wheels, under another name.
    Wheels,
    /// Neither.
    Nothing,
}

/// How far the making of an environment has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step<'a> {
    /// Another process makes the same.
    Waiting,
    /// The index is asked by this program.
    Resolving(&'a Resolver),
    /// A wheel is installed.
    Installing {
        /// Its name.
        file: &'a str,
        /// Its number, from 0.
        number: usize,
        /// How many there are.
        count: usize,
    },
}

/// Makes an environment, or finds that there is one.
///
/// Two at once make one: the second waits for the first. What fails, or is cancelled, leaves nothing behind.
///
/// # Errors
/// If it cannot be made.
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
    let making = Making {
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
    if let Some(made) = making.existing()? {
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
        // Code of packages had to do with this sandbox. Another one installs.
        access.directories.push(directory.path.clone());
        jail = jail_for(Builds::Refused, &access)?;
        built = Some(directory);
    }
    let lock_of_wheels = Lock::new(found).map_err(EnvironmentError::Lock)?;
    let made = making.install(&jail, &lock_of_wheels, progress);
    drop((built, lock));
    made
}

/// The name of an environment: the one that was chosen, or that of its packages.
fn name_of(
    creation: &Creation,
    sources: &Sources,
    interpreter: &Interpreter,
    binary: &Path,
) -> Result<EnvironmentName, EnvironmentError> {
    let Some(name) = &creation.name else {
        // What is added depends on what there is.
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

/// The directories of a store. Root's guests are another user, who must be able to read in them.
///
/// # Errors
/// If they cannot be made, or another user can change what is in them.
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

/// An environment that is being made.
struct Making<'a> {
    store: &'a EnvironmentStore,
    binary: &'a Path,
    interpreter: &'a Interpreter,
    named: NamedEnvironment,
    name: EnvironmentName,
}

impl Making<'_> {
    /// The environment, if there is one that was asked for in the same way.
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
            // No person chose the name: it is given to what is made now.
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
        // The same wheels under another name: one process makes them.
        let _alone = lock_when_free(self.store, &format!("making {key}"), &jail.cancel)?;
        // Nothing removes it before it has a name.
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
            // A directory that is moved must be writable. Guests see it read-only in any case.
            fs::set_permissions(&path, Permissions::from_mode(0o555))
        });
        moved.map_err(EnvironmentError::io(&path))
    }

    /// Adds what makes a virtual environment of the files, and closes them.
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
        // Under its name it is complete, also after a power failure.
        nix::unistd::syncfs(File::open(root)?)?;
        Ok(())
    }
}

fn version_text(interpreter: &Interpreter) -> String {
    let (major, minor, patch) = interpreter.version;
    format!("{major}.{minor}.{patch}")
}
