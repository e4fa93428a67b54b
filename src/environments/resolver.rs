//! Chooses the program that resolves packages: uv if there is one that can be used, otherwise pip.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::create::{Creation, Layer};
use super::error::EnvironmentError;
use super::explain::plain;
use super::jail::Builds;
use crate::host::CallerEnvironment;

/// The caller's variable that names a uv in place of the one on `PATH`. An empty value selects pip.
const VARIABLE: &str = "SANDFORK_UV";

/// The first release whose locks contain only wheels that fit the interpreter.
const OLDEST: [u32; 2] = [0, 10];

/// A uv of the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Uv {
    /// The program, without symbolic links: a sandbox shows it at this path.
    pub program: PathBuf,
    /// The version that it reports.
    version: String,
}

/// The program that resolves packages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Resolver {
    /// The interpreter's pip.
    Pip,
    /// A uv.
    Uv(Uv),
}

impl Resolver {
    /// Chooses uv, if the caller has one and it supports the request. Only pip installs by requested hashes, builds
    /// source distributions, and adds to packages in directories that uv ignores, such as Debian's.
    ///
    /// # Errors
    /// If the caller names a uv that cannot be used.
    pub fn of(
        creation: &Creation,
        environment: &CallerEnvironment,
    ) -> Result<Self, EnvironmentError> {
        let is_for_pip = creation.layer == Layer::Added
            || creation.builds == Builds::Allowed
            || creation.wanted.has_hashes();
        if is_for_pip {
            return Ok(Self::Pip);
        }
        let found = match environment.text(VARIABLE) {
            Some("") => None,
            Some(named) => Some(Uv::at(Path::new(named)).map_err(|problem| {
                EnvironmentError::Request(format!(
                    "SANDFORK_UV names {named}, and {problem}: name uv 0.10 or later, or leave it empty for pip"
                ))
            })?),
            None => on_path(environment.text("PATH").unwrap_or_default()),
        };
        Ok(found.map_or(Self::Pip, Self::Uv))
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Pip => "pip",
            Self::Uv(uv) => &uv.version,
        }
    }
}

/// Returns the first usable uv on a search path. Launcher scripts and old releases are skipped.
fn on_path(path: &str) -> Option<Uv> {
    let places = path.split(':').map(Path::new);
    places
        .filter(|place| place.is_absolute())
        .find_map(|place| Uv::at(&place.join("uv")).ok())
}

impl Uv {
    /// Examines a program.
    ///
    /// # Errors
    /// The reason why it is not a usable uv.
    fn at(path: &Path) -> Result<Self, String> {
        let program = path.canonicalize().map_err(|error| error.to_string())?;
        let mut magic = [0; 4];
        let begun = File::open(&program).and_then(|mut file| file.read_exact(&mut magic));
        begun.map_err(|error| error.to_string())?;
        if magic != *b"\x7fELF" {
            return Err("it is a launcher, which a sandbox cannot follow".to_owned());
        }
        let mut command = Command::new(&program);
        command.arg("--version").env_clear();
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?.stdout;
        let output = String::from_utf8_lossy(&output);
        let output = plain(output.lines().next().unwrap_or_default());
        match numbers(&output) {
            None => Err(format!("it is not uv, and says \"{output}\"")),
            Some(numbers) if numbers < OLDEST => Err(format!("it is {output}")),
            // Drop the commit and the platform after the version.
            Some(_) => Ok(Self {
                program,
                version: output.split(' ').take(2).collect::<Vec<_>>().join(" "),
            }),
        }
    }
}

/// Parses the major and minor version that uv reports.
fn numbers(output: &str) -> Option<[u32; 2]> {
    let version = output.strip_prefix("uv ")?.split(' ').next()?;
    let mut parts = version.split('.').map(str::parse);
    Some([parts.next()?.ok()?, parts.next()?.ok()?])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::environments::Wanted;

    fn creation(layer: Layer, builds: Builds, lines: &[&str]) -> Creation {
        Creation {
            name: None,
            packages: Vec::new(),
            wanted: Wanted {
                lines: lines.iter().map(|line| (*line).to_owned()).collect(),
                ..Wanted::default()
            },
            interpreter: "python3".to_owned(),
            index: None,
            allowed: Vec::new(),
            builds,
            layer,
        }
    }

    fn environment(variables: &[(&str, &str)]) -> CallerEnvironment {
        let variables = variables.iter().map(|(name, value)| (*name, Some(*value)));
        CallerEnvironment::default().changed_by(variables)
    }

    #[test]
    fn uv_versions_are_parsed() {
        assert_eq!(
            numbers("uv 0.13.9 (x86_64-unknown-linux-gnu)"),
            Some([0, 13])
        );
        assert_eq!(numbers("uv 1.0"), Some([1, 0]));
        for other in ["", "uv", "uv x.y", "pip 23.2.1 from /", "uv 0"] {
            assert_eq!(numbers(other), None, "{other}");
        }
        assert!([0, 9] < OLDEST && [1, 0] > OLDEST);
    }

    #[test]
    fn unusable_uv_is_skipped_on_path_and_rejected_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = |name: &str| {
            let place = dir.path().join(name);
            fs::create_dir(&place).expect("a directory");
            place.join("uv")
        };
        let launcher = place("launcher");
        fs::write(&launcher, "#!/bin/sh\necho uv 0.13.9\n").expect("a file");
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let other = place("other");
        symlink("/bin/true", &other).expect("a link");
        let path = format!(
            "relative:{}:{}:{}",
            dir.path().join("launcher").display(),
            dir.path().join("other").display(),
            dir.path().join("none").display(),
        );
        let whole = creation(Layer::Whole, Builds::Refused, &["six"]);
        let of = |variables: &[(&str, &str)]| Resolver::of(&whole, &environment(variables));
        assert_eq!(of(&[("PATH", &path)]).expect("pip"), Resolver::Pip);
        assert_eq!(of(&[]).expect("pip"), Resolver::Pip);
        let launcher = launcher.display().to_string();
        let refused = of(&[(VARIABLE, &launcher)])
            .expect_err("refused")
            .to_string();
        assert_eq!(
            refused,
            format!(
                "SANDFORK_UV names {launcher}, and it is a launcher, which a sandbox cannot follow: name uv 0.10 or later, \
                 or leave it empty for pip"
            )
        );
        // Requests that only pip supports do not look for uv.
        for creation in [
            creation(Layer::Added, Builds::Refused, &["six"]),
            creation(Layer::Whole, Builds::Allowed, &["six"]),
            creation(Layer::Whole, Builds::Refused, &["six --hash=sha256:00"]),
        ] {
            let resolver = Resolver::of(&creation, &environment(&[(VARIABLE, &launcher)]));
            assert_eq!(resolver.expect("pip"), Resolver::Pip);
        }
    }
}
