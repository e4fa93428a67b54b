//! A caller's request for one run.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::AskHost;
use super::cancel::Cancel;
use super::opaque::Opaque;
use super::program::Program;
use super::request_files::script_path;
use super::stdin::Stdin;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::policy::{LimitName, LimitOverrides, Limits};
use crate::protocol::message::{AfterCell, ResultMode, SourceKind, WorkerMode, has_coding_line};
use crate::protocol::{self, VERSION};
use crate::supervisor::ending::Kind;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::files::{GuestPath, WorkDir, check_fit};
use crate::supervisor::spawn::Worker;

/// The id of a run's only request.
pub(in crate::supervisor) const ONLY_REQUEST: u64 = 1;

/// The file name that marks a cell whose source is the name of a module to run (`MODULE` in the guest's `cell.py`).
const MODULE: &str = "<-m>";

/// A function of the caller that reads the work directory after a run.
type Collect = dyn Fn(&WorkDir, &Outcome) + Send + Sync;

/// One run: its code, its arguments, files and standard input, and its cancellation handle.
///
/// A string is a request too: Python source named `<string>`, without standard input. A clone
/// shares the request's data, so that cloning is cheap.
#[derive(Clone, Debug)]
pub struct Request {
    program: Arc<Program>,
    /// The files that the work directory contains when the guest starts.
    pub(super) files: Arc<Vec<(GuestPath, Vec<u8>)>>,
    pub(super) stdin: Stdin,
    pub(super) overrides: LimitOverrides,
    terminal: Option<Arc<str>>,
    pub(crate) client: Arc<str>,
    pub(crate) cancel: Option<Cancel>,
    collector: Option<Opaque<Arc<Collect>>>,
    pub(super) ask_host: AskHost,
    last: ResultMode,
}

impl Request {
    /// Runs Python source: UTF-8, or the encoding of its coding line (PEP 263). The source may have
    /// at most 16 MiB, or the run is an error of kind [`Request`](crate::ErrorKind::Request).
    pub fn python(source: impl Into<Vec<u8>>) -> Self {
        Self::source(source.into(), SourceKind::File)
    }

    /// Runs Python source that was never a file: a coding line in it is ignored.
    pub(crate) fn text(source: String) -> Self {
        Self::source(source.into_bytes(), SourceKind::Text)
    }

    /// Runs Python source of the given kind.
    pub(crate) fn source(source: Vec<u8>, kind: SourceKind) -> Self {
        Self::new(Program::Python {
            source,
            kind,
            filename: "<string>".to_owned(),
            args: Vec::new(),
        })
    }

    /// Runs a module as `python -m` does: an installed module, or a module of the policy's `python.project` or
    /// `python.path`.
    pub fn module(name: impl Into<String>) -> Self {
        Self::python(name.into()).filename(MODULE)
    }

    /// Runs a program of the sandbox. `argv` holds its path in the sandbox, or its name on the guest's `PATH`, followed
    /// by its arguments.
    pub fn program(argv: Vec<String>) -> Self {
        Self::new(Program::Command(argv))
    }

    fn new(program: Program) -> Self {
        Self {
            program: Arc::new(program),
            files: Arc::default(),
            stdin: Stdin::Nothing,
            overrides: LimitOverrides::default(),
            terminal: None,
            client: Arc::from(""),
            cancel: None,
            collector: None,
            ask_host: AskHost::No,
            last: ResultMode::Expression,
        }
    }

    /// Sets the name in tracebacks and in `sys.argv[0]`. It need not exist as a file. Code that looks for its own file,
    /// as `multiprocessing` does when it spawns, needs a file of the request ([`file`](Self::file)) or of the policy at
    /// that path.
    #[must_use]
    pub fn filename(mut self, name: impl Into<String>) -> Self {
        if let Program::Python { filename, .. } = Arc::make_mut(&mut self.program) {
            *filename = name.into();
        }
        self
    }

    /// Leaves out the value, for a caller that does not show it: making the value may take long and run guest code.
    #[must_use]
    pub(crate) const fn without_value(mut self) -> Self {
        self.last = ResultMode::Nothing;
        self
    }

    /// Names a script, and puts its file into the work directory, where code finds it by `__file__`.
    #[must_use]
    pub(crate) fn own_file(self, path: &str) -> Self {
        let source = match &*self.program {
            // Text was decoded already, so its coding line no longer matches its encoding.
            Program::Python { source, kind, .. }
                if *kind == SourceKind::File || !has_coding_line(source) =>
            {
                source.clone()
            }
            _ => return self.filename(path),
        };
        match script_path(path) {
            Some(place) => self.filename(place.to_string()).file(place, source),
            None => self.filename(path),
        }
    }

    /// Adds arguments: `sys.argv[1:]`, or arguments of a program.
    #[must_use]
    pub fn args(mut self, more: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let (Program::Python { args, .. } | Program::Command(args)) =
            Arc::make_mut(&mut self.program);
        args.extend(more.into_iter().map(Into::into));
        self
    }

    /// Adds a file to the work directory before the guest starts, and creates its parent directories. The guest owns
    /// the file, which counts against `filesystem.work_size` and `filesystem.work_inodes`: a file that exceeds them is
    /// an error of kind [`Request`](crate::ErrorKind::Request).
    #[must_use]
    pub fn file(mut self, path: GuestPath, contents: impl Into<Vec<u8>>) -> Self {
        Arc::make_mut(&mut self.files).push((path, contents.into()));
        self
    }

    /// Lets the guest read from this descriptor. Without it, standard input is empty.
    ///
    /// The guest gets the open file itself, even if the policy does not show its path. The guest shares the offset and
    /// the flags, can read the path, and can change mode, times and extended attributes as the file's owner can, and
    /// also the contents if the file is open for writing. Pass the read end of a pipe that nothing else uses, and copy
    /// a file, a terminal or a socket into it: [`stdin_bytes`](Self::stdin_bytes) does so for bytes. A policy whose
    /// `stdio.stdin` is `"closed"` refuses the request.
    #[must_use]
    pub fn stdin(mut self, stdin: OwnedFd) -> Self {
        self.stdin = Stdin::Descriptor(Arc::new(stdin));
        self
    }

    /// Lets the guest read these bytes, from a pipe. A policy whose `stdio.stdin` is `"closed"`
    /// refuses the request.
    #[must_use]
    pub fn stdin_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(Arc::new(bytes.into()));
        self
    }

    /// Gives the program its own terminal of this kind (`TERM`). Standard input then carries records, as
    /// docs/protocol.md describes them.
    #[must_use]
    pub(crate) fn with_terminal(mut self, kind: &str) -> Self {
        self.terminal = Some(kind.into());
        self
    }

    /// Returns the kind of the program's terminal, if it has one.
    pub(super) fn terminal(&self) -> Option<String> {
        self.terminal.as_deref().map(str::to_owned)
    }

    /// Sets a wall-clock limit below the policy's `limits.wall`.
    ///
    /// As with [`cpu`](Self::cpu) and [`output`](Self::output), a request may only lower the policy's limit. Raising it
    /// is an error of kind [`Request`](crate::ErrorKind::Request).
    #[must_use]
    pub fn wall(mut self, wall: Duration) -> Self {
        self.overrides.set(LimitName::Wall, milliseconds(wall));
        self
    }

    /// Sets a limit on the CPU time of all processes together, below the policy's `limits.cpu`.
    #[must_use]
    pub fn cpu(mut self, cpu: Duration) -> Self {
        self.overrides.set(LimitName::Cpu, milliseconds(cpu));
        self
    }

    /// Sets a limit on the bytes of both streams together, below the policy's `limits.output`.
    #[must_use]
    pub fn output(mut self, output: u64) -> Self {
        self.overrides.set(LimitName::Output, output);
        self
    }

    /// Replaces the limits that the request overrides.
    #[must_use]
    pub(crate) fn overrides(mut self, overrides: LimitOverrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// Names the client of the request, for an [`Admission`](crate::Admission) in which clients take turns. Any text
    /// that distinguishes clients will do. All requests without a name count as one client.
    #[must_use]
    pub fn client(mut self, client: impl Into<Arc<str>>) -> Self {
        self.client = client.into();
        self
    }

    /// Looks up which of the paths that the guest did not find exist on the host. A path that does not exist there is
    /// then no [`Denial`](crate::Denial), and a path that exists is marked (`on_host`).
    ///
    /// By default nothing is looked up, because a caller that passes the answer on to the author of the code reveals
    /// what exists on the host. A lookup opens nothing, follows no link, and is made on local file systems only.
    #[must_use]
    pub fn ask_host(mut self) -> Self {
        self.ask_host = AskHost::Yes;
        self
    }

    /// Lets another thread cancel the run, even before it starts.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Sets a function that is called with the work directory once no process of the guest is left.
    #[must_use]
    pub(crate) fn collect(
        mut self,
        collect: impl Fn(&WorkDir, &Outcome) + Send + Sync + 'static,
    ) -> Self {
        self.collector = Some(Opaque(Arc::new(collect)));
        self
    }

    /// Lets the caller read the work directory of a run that is over.
    pub(super) fn collect_from(&self, worker: &Worker, cwd: &Path, outcome: &Outcome) {
        if let (Some(collector), Some(work)) = (&self.collector, worker.directories.first()) {
            (collector.0)(&WorkDir::new(work.as_fd(), cwd, worker.ids), outcome);
        }
    }

    /// Whether the guest has standard input.
    pub(crate) fn has_stdin(&self) -> bool {
        !matches!(self.stdin, Stdin::Nothing)
    }

    /// Checks that the files fit together into a work directory under these limits.
    pub(crate) fn check_files(&self, limits: &Limits) -> Result<(), Error> {
        check_fit(&self.files, limits)
    }

    pub(super) fn kind(&self) -> Kind {
        match *self.program {
            Program::Python { .. } => Kind::Cell,
            Program::Command(_) => Kind::Program,
        }
    }

    /// Encodes the frames for the worker.
    pub(super) fn encode(&self) -> Result<Vec<u8>, SupervisorError> {
        self.program.check()?;
        let mut bytes = Vec::new();
        let hello = protocol::Request::Hello {
            version: VERSION,
            serves: WorkerMode::OneRun,
        };
        hello.encode_into(&[], &mut bytes)?;
        match &*self.program {
            Program::Python {
                source,
                kind,
                filename,
                args,
            } => {
                let cell = protocol::Request::Cell {
                    id: ONLY_REQUEST,
                    filename: filename.clone(),
                    argv: args.clone(),
                    last: self.last,
                    then: AfterCell::End,
                    source: *kind,
                    terminal: self.terminal(),
                };
                cell.encode_into(source, &mut bytes)?;
            }
            Program::Command(argv) => {
                let exec = protocol::Request::Exec {
                    id: ONLY_REQUEST,
                    argv: argv.clone(),
                    terminal: self.terminal(),
                };
                exec.encode_into(&[], &mut bytes)?;
            }
        }
        Ok(bytes)
    }
}

/// Whole milliseconds, rounded up.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

impl From<&str> for Request {
    fn from(source: &str) -> Self {
        Self::text(source.to_owned())
    }
}

impl From<&Request> for Request {
    fn from(request: &Request) -> Self {
        request.clone()
    }
}

impl From<String> for Request {
    fn from(source: String) -> Self {
        Self::text(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_a_coding_line_gets_no_file() {
        for (text, files) in [("# coding: latin-1\n", 0), ("pass\n", 1)] {
            let request = Request::text(text.to_owned()).own_file("a.py");
            assert_eq!(request.files.len(), files, "{text}");
            // A `String` is treated as text, like a `&str`.
            let [one, other] = [Request::from(text), Request::from(text.to_owned())];
            assert_eq!(one.encode().ok(), other.encode().ok());
        }
    }
}
