//! Runs the resolver and the installer in a sandbox whose only network is the index.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;

use super::create::Layer;
use super::error::EnvironmentError;
use super::explain::{plain, refused_hosts};
use super::index::Access;
use super::lock::{Lock, LockedWheel};
use super::requirements::Wanted;
use super::resolver::Resolver;
use super::tree::{FileError, FileMode, MAX_BYTES, Tree};
use crate::error::Error;
use crate::host::{CallerEnvironment, Interpreter, Machine};
use crate::outcome::Outcome;
use crate::policy::{Override, Policy};
use crate::policy_source::FileSystem;
use crate::sandbox::Sandbox;
use crate::session::{Cell, OutgoingValue, ToolArguments};
use crate::supervisor::files::GuestPath;
use crate::supervisor::{Cancel, Request};

/// The program that fetches and unpacks wheels.
const INSTALL: &str = include_str!("guest/install.py");

/// The maximum length of an answer in bytes: some kilobytes per package.
const LONGEST_ANSWER: usize = 16 << 20;

/// Whether source distributions may be built, which runs their code.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Builds {
    /// They are built if there is no wheel.
    Allowed,
    /// Only wheels are installed.
    Refused,
}

/// A sandbox that can reach only the index.
#[derive(Debug)]
pub struct InstallJail {
    sandbox: Arc<Sandbox>,
    pub(super) interpreter: PathBuf,
    pub(super) builds: Builds,
    resolver: Resolver,
    pub(super) access: Access,
    pub(super) cancel: Cancel,
}

impl InstallJail {
    /// Creates the sandbox.
    ///
    /// # Errors
    /// If the host cannot provide the sandbox.
    pub fn new(
        interpreter: &Interpreter,
        builds: Builds,
        resolver: &Resolver,
        access: Access,
        environment: &CallerEnvironment,
        cancel: &Cancel,
    ) -> Result<Self, EnvironmentError> {
        let policy = policy(interpreter, builds, resolver, &access);
        let policy = policy.map_err(EnvironmentError::Sandbox)?;
        let variables = access
            .variables
            .iter()
            .map(|(name, value)| (name, Some(value)));
        let environment = environment.clone().changed_by(variables);
        let sandbox = Sandbox::builder()
            .policy(policy)
            .environment(environment)
            .ready(0)
            .build_without_installing();
        Ok(Self {
            sandbox: Arc::new(sandbox.map_err(EnvironmentError::Sandbox)?),
            interpreter: interpreter.executable.clone(),
            builds,
            resolver: resolver.clone(),
            access,
            cancel: cancel.clone(),
        })
    }

    /// Finds the requested wheels, and source distributions if these may be built.
    ///
    /// # Errors
    /// If no set of packages satisfies the request.
    pub fn resolve(
        &self,
        wanted: &Wanted,
        layer: Layer,
    ) -> Result<Vec<LockedWheel>, EnvironmentError> {
        match &self.resolver {
            Resolver::Pip => self.resolve_by_pip(wanted, layer),
            Resolver::Uv(uv) => self.resolve_by_uv(uv, wanted),
        }
    }

    /// Returns a request that calls a function of the guest program, with the requirements as files.
    pub(super) fn request(
        &self,
        program: &str,
        call: &str,
        wanted: &Wanted,
    ) -> Result<Request, EnvironmentError> {
        let source = format!("{program}\nimport json\njson.dumps({call})\n");
        let mut request = Request::python(source).cancel(&self.cancel);
        for (name, lines) in [
            ("requirements.txt", &wanted.lines),
            ("constraints.txt", &wanted.constraints),
        ] {
            let path = GuestPath::of_file(name).map_err(EnvironmentError::Sandbox)?;
            request = request.file(path, lines.join("\n") + "\n");
        }
        Ok(request)
    }

    /// Runs a call, and parses its answer if it succeeded.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        request: Request,
        doing: &'static str,
    ) -> Result<(T, Outcome), EnvironmentError> {
        let outcome = self
            .sandbox
            .run(request)
            .map_err(EnvironmentError::Sandbox)?;
        let buffers = outcome.buffers();
        let text = outcome.value().and_then(|value| value.text(&buffers));
        let text = text.filter(|text| outcome.is_ok() && text.len() <= LONGEST_ANSWER);
        match text.and_then(|text| serde_json::from_str(&text).ok()) {
            Some(answer) => Ok((answer, outcome)),
            None => Err(self.ended(&outcome, doing)),
        }
    }

    fn ended(&self, outcome: &Outcome, doing: &'static str) -> EnvironmentError {
        if self.cancel.is_used() {
            return EnvironmentError::Interrupted;
        }
        let error = outcome
            .error()
            .map(|error| format!(" ({}: {})", plain(&error.name), plain(&error.message)));
        let limit = outcome.limit().map(|hit| format!(" ({})", hit.name.key()));
        EnvironmentError::Failed(format!(
            "the packages could not be {doing}: the installer ended with status {}{}",
            outcome.status(),
            limit.or(error).unwrap_or_default()
        ))
    }

    /// Fetches the wheels of a lock, and writes their files into an empty directory, which will be moved to `prefix`.
    /// Calls `begun` for each wheel.
    ///
    /// A fresh worker does this, so nothing that ran while the lock was resolved can interfere.
    ///
    /// # Errors
    /// If a wheel cannot be fetched, has the wrong hash, or has files that no environment may have.
    pub fn install(
        &self,
        lock: &Lock,
        prefix: &str,
        interpreter: &Interpreter,
        tree: Tree,
        begun: &mut dyn FnMut(usize),
    ) -> Result<u64, EnvironmentError> {
        let mut session = self.sandbox.session().map_err(EnvironmentError::Sandbox)?;
        let writer = Arc::new(Mutex::new(Writer { tree, failed: None }));
        let put = Arc::clone(&writer);
        let declared = session.tool("put", move |arguments| {
            let mut writer = put.lock().unwrap_or_else(PoisonError::into_inner);
            writer.put(&arguments);
            match writer.failed {
                None => Ok(OutgoingValue::default()),
                // The guest, which chose the file names, does not get the message.
                Some(_) => Err(crate::session::NamedError::new("RuntimeError", "refused")),
            }
        });
        declared.map_err(EnvironmentError::Sandbox)?;
        let (major, minor, _) = interpreter.version;
        let define = session.run(Cell::new(INSTALL).cancel(&self.cancel));
        define.map_err(EnvironmentError::Sandbox)?;
        for (number, wheel) in lock.wheels().iter().enumerate() {
            begun(number);
            let described = serde_json::json!({
                "file": wheel.file,
                "url": wheel.url,
                "sha256": wheel.sha256,
                "unchecked": self.access.unchecked.iter().any(|host| has_host(&wheel.url, host)),
            });
            let described = literal(&described);
            let source = format!(
                "import json\njson.dumps(_install({}, '{major}.{minor}', [{described}], {MAX_BYTES}, put))",
                literal(&prefix),
            );
            let report = session
                .run(Cell::new(source).cancel(&self.cancel))
                .map_err(EnvironmentError::Sandbox)?;
            let outcome = report.outcome();
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = writer.failed.take() {
                return Err(error.into());
            }
            let buffers = report.buffers();
            let answer = outcome.value().and_then(|value| value.text(&buffers));
            let answer = answer.filter(|_| outcome.is_ok() && !self.cancel.is_used());
            let answer: Option<Option<(String, String)>> =
                answer.and_then(|answer| serde_json::from_str(&answer).ok());
            match answer {
                None => return Err(self.ended(outcome, "installed")),
                Some(Some((_, reason))) => {
                    return Err(EnvironmentError::Failed(format!(
                        "{} {}{}; nothing was installed",
                        wheel.file,
                        plain(&reason),
                        refused_hosts(outcome.network())
                    )));
                }
                Some(None) => {}
            }
        }
        let writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(writer.tree.bytes())
    }
}

/// Writes the files that the installer sends.
#[derive(Debug)]
struct Writer {
    tree: Tree,
    failed: Option<FileError>,
}

/// A part of a file: path, whether it is executable, offset, and length.
type Piece = (String, bool, u64, usize);

impl Writer {
    fn put(&mut self, arguments: &ToolArguments) {
        if self.failed.is_none() {
            self.failed = self.write(arguments).err();
        }
    }

    fn write(&mut self, arguments: &ToolArguments) -> Result<(), FileError> {
        let buffers = arguments.buffers();
        let wrong = || FileError::order("a call");
        let [pieces, data] = &arguments.args[..] else {
            return Err(wrong());
        };
        let pieces = pieces.text(&buffers).ok_or_else(wrong)?;
        let mut data = data.bytes(&buffers).ok_or_else(wrong)?;
        let pieces: Vec<Piece> = serde_json::from_str(&pieces).map_err(|_| wrong())?;
        for (path, is_program, offset, length) in pieces {
            let (part, rest) = data.split_at_checked(length).ok_or_else(wrong)?;
            let mode = if is_program {
                FileMode::Program
            } else {
                FileMode::Plain
            };
            self.tree.write(&path, mode, offset, part)?;
            data = rest;
        }
        Ok(())
    }
}

fn policy(
    interpreter: &Interpreter,
    builds: Builds,
    resolver: &Resolver,
    access: &Access,
) -> Result<Policy, Error> {
    /// Memory that suffices for the largest wheels and their installer.
    const ENOUGH: u64 = 8 << 30;
    const MIB: u64 = 1 << 20;
    let host = Machine::probe()?.limits.memory;
    let memory = (host / 4 * 3).min(ENOUGH) / MIB;
    let work = memory / 2;
    let mut sets = vec![
        format!("python.interpreter={}", interpreter.executable.display()),
        format!("limits.memory={memory}MiB"),
        format!("filesystem.work_size={work}MiB"),
        format!("limits.file_size={work}MiB"),
        "filesystem.work_inodes=65536".to_owned(),
        "limits.wall=1h".to_owned(),
        "network.bytes=64GiB".to_owned(),
        // Build tools are programs that pip fetches.
        format!("filesystem.work_exec={}", builds == Builds::Allowed),
        // pip and uv store downloads there while they resolve.
        "env.set={ TMPDIR = '/work' }".to_owned(),
    ];
    let directories = access.directories.iter().filter(|path| path.is_dir());
    let shown = directories.chain(&access.files);
    sets.extend(shown.map(|path| format!("filesystem.read={}", path.display())));
    if let Resolver::Uv(uv) = resolver {
        sets.push(format!("filesystem.read={}", uv.program.display()));
    }
    sets.extend(access.overrides.iter().cloned());
    let sets: Result<Vec<Override>, _> = sets.iter().map(|set| set.parse()).collect();
    Ok(Policy::load("standard", &sets?, &FileSystem)?)
}

/// Returns a value as a Python expression.
pub(super) fn literal(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    // Parsed by json.loads, because `true` and `null` are not Python.
    let quoted = serde_json::to_string(&text).unwrap_or_default();
    format!("__import__('json').loads({quoted})")
}

fn has_host(url: &str, host: &str) -> bool {
    let authority = url
        .split("://")
        .nth(1)
        .and_then(|rest| rest.split('/').next());
    authority
        .is_some_and(|it| it == host || it.rsplit_once(':').is_some_and(|(name, _)| name == host))
}
