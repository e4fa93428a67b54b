//! Tests that the examples print the documented output.
//!
//! `cargo test` builds them first; `cargo test --test examples` alone does not. Examples that need
//! packages run with the interpreters that `cargo xtask test envs` made.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use sandfork::Level;
use serde::Deserialize;

use common::{examples, skips_are_forbidden, trial};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

type Test = fn() -> Result<(), Failed>;
type PythonTest = fn(&Path) -> Result<(), Failed>;

fn main() -> ExitCode {
    let tests: [(&str, Test); 9] = [
        ("hello", hello),
        ("run_once", run_once),
        ("run_once_with_an_exception", run_once_with_an_exception),
        ("custom_policy", custom_policy),
        ("embedded_server", embedded_server),
        ("session", session),
        ("notebook", notebook),
        ("batch", batch),
        ("branches", branches),
    ];
    let mut trials: Vec<Trial> = tests
        .map(|(name, test)| trial(name, Level::Standard, test))
        .into();
    let manifest = Manifest::read();
    trials.push(python_trial("analysis", manifest.for_data(), analysis));
    trials.push(python_trial("server", manifest.for_clients(), server));
    trials.push(python_trial(
        "evaluation",
        manifest.for_clients(),
        evaluation,
    ));
    trials.push(python_trial(
        "deep_agent",
        manifest.for_clients(),
        deep_agent,
    ));
    trials.push(python_trial(
        "sandbox_agent",
        manifest.for_clients(),
        sandbox_agent,
    ));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The environments that `cargo xtask test envs` made; empty if it did not run.
#[derive(Default, Deserialize)]
struct Manifest {
    interpreters: Vec<Interpreter>,
    client: Option<Client>,
}

/// An interpreter with the packages that guests import.
#[derive(Deserialize)]
struct Interpreter {
    version: [u8; 3],
    venv: PathBuf,
}

/// An interpreter with the packages that host programs import.
#[derive(Deserialize)]
struct Client {
    python: PathBuf,
}

impl Manifest {
    fn read() -> Self {
        let usual = || Path::new(ROOT).join("target/test-envs");
        let environments = std::env::var_os("SANDFORK_TEST_ENVS").map_or_else(usual, PathBuf::from);
        std::fs::read_to_string(environments.join("manifest.json"))
            .map_or_else(|_| Ok(Self::default()), |text| serde_json::from_str(&text))
            .unwrap()
    }

    /// Returns the newest interpreter with the data analysis packages. One made from an older list may lack some.
    fn for_data(&self) -> Option<PathBuf> {
        let found = self.interpreters.iter().filter(|it| {
            let packages = it.packages();
            packages.join("pandas").is_dir() && packages.join("matplotlib").is_dir()
        });
        let newest = found.max_by_key(|it| it.version)?;
        Some(newest.venv.join("bin/python"))
    }

    fn for_clients(&self) -> Option<PathBuf> {
        self.client.as_ref().map(|client| client.python.clone())
    }
}

impl Interpreter {
    fn packages(&self) -> PathBuf {
        let [major, minor, _] = self.version;
        let library = self.venv.join(format!("lib/python{major}.{minor}"));
        library.join("site-packages")
    }
}

/// Makes a test of an example that needs packages. Every user can install missing packages, so in CI their
/// absence is a failure.
fn python_trial(name: &'static str, python: Option<PathBuf>, test: PythonTest) -> Trial {
    if let Some(python) = python {
        return trial(name, Level::Standard, move || test(&python));
    }
    Trial::ignorable_test(name, || {
        let reason = "no test environment with its packages: run `cargo xtask test envs`";
        if skips_are_forbidden() {
            return Err(format!("may not be skipped here: {reason}").into());
        }
        Ok(Completion::ignored_with(reason))
    })
}

/// Runs a command that must succeed and returns its stdout.
fn printed(command: &mut Command) -> Result<String, Failed> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        let program = Path::new(command.get_program()).display();
        format!("{program}: {error}; `cargo build --examples` builds the examples")
    })?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {stderr}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn example(name: &str, arguments: &[&str]) -> Result<String, Failed> {
    printed(Command::new(examples().join(name)).args(arguments))
}

/// Runs an example with an interpreter that imports the client from the sources, and the program that cargo has built.
fn python_example(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command
        .arg(Path::new(ROOT).join("examples/python").join(name))
        .env("PYTHONPATH", Path::new(ROOT).join("python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SANDFORK_BINARY", env!("CARGO_BIN_EXE_sandfork"));
    command
}

/// Checks that the lines begin and end with these parts, in order.
fn assert_lines(text: &str, parts: &[(&str, &str)]) -> Result<(), Failed> {
    let lines: Vec<&str> = text.lines().collect();
    let fits = lines.len() == parts.len()
        && lines
            .iter()
            .zip(parts)
            .all(|(line, (start, end))| line.starts_with(start) && line.trim_end().ends_with(end));
    if fits {
        Ok(())
    } else {
        Err(format!("printed\n{text}where this was expected: {parts:#?}").into())
    }
}

fn hello() -> Result<(), Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
    let script = Path::new(ROOT).join("examples/hello.py");
    let text = printed(command.arg("run").arg(script))?;
    assert_lines(
        &text,
        &[
            ("Hello from CPython 3.", " in a sandbox."),
            ("I am uid 1000, process 2, in /work.", ""),
            ("Your files are out of reach: [Errno 2]", "'/home'"),
            ("So is the network: [Errno 1]", ""),
            ("6 * 7 = 42", ""),
        ],
    )
}

fn run_once() -> Result<(), Failed> {
    let enforced = ("enforced: ", "");
    let text = example("run_once", &[])?;
    assert_lines(&text, &[("42", ""), ("ok in ", " ms"), enforced])?;
    let text = example("run_once", &["print(len('sandfork'))"])?;
    assert_lines(&text, &[("8", ""), ("ok in ", " ms"), enforced])
}

fn run_once_with_an_exception() -> Result<(), Failed> {
    let text = example("run_once", &["1 / 0"])?;
    let enforced = ("enforced: ", "");
    assert_lines(&text, &[("exception in ", " ms"), enforced])
}

fn custom_policy() -> Result<(), Failed> {
    let text = example("custom_policy", &[])?;
    assert_lines(
        &text,
        &[
            ("a mean: ok after ", " ms. 2.5"),
            (
                "an import that is not listed: exception after ",
                " ms. ImportError: Import of subprocess is not allowed. \
                 Authorized imports are: ['fractions', 'math', 'statistics']",
            ),
            ("an endless loop: timeout after ", " ms."),
            ("too much memory: memory-limit after ", " ms. MemoryError:"),
            ("too much output: output-limit after ", " ms."),
        ],
    )
}

fn embedded_server() -> Result<(), Failed> {
    let text = example("embedded_server", &["--self-test"])?;
    assert_lines(
        &text,
        &[
            ("serving on http://127.0.0.1:", "/run"),
            ("64 snippets of 16 clients were answered", ""),
        ],
    )
}

fn session() -> Result<(), Failed> {
    let text = example("session", &[])?;
    assert_lines(
        &text,
        &[
            ("ok: 3.5", ""),
            ("exception: LookupError: no price of plum", ""),
            ("timeout: KeyboardInterrupt", ""),
            ("ok: 2", ""),
        ],
    )
}

/// Runs with a plain `python3`: needs no packages.
fn notebook() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let page = directory.path().join("page.html");
    let mut command = python_example(Path::new("python3"), "notebook.py");
    command
        .arg(Path::new(ROOT).join("examples/python/notebook_cells.py"))
        .arg(&page)
        .args(["--patience", "1"]);
    assert_lines(
        &printed(&mut command)?,
        &[
            ("[1] ok; 13.7", ""),
            ("[2] ok; <__main__.Chart object", "shows svg"),
            ("[3] ok; shows html", ""),
            ("[4] exception; TypeError: list indices", ""),
            ("[5] interrupted; Interrupted", ""),
            ("[6] ok; 5", ""),
            ("[7] signal; Signal: the guest was ended by signal 11", ""),
            ("[8] ok; in a fresh session; False", ""),
            ("after a restart: []", ""),
            ("saved page.html", ""),
        ],
    )?;
    let html = std::fs::read_to_string(&page)?;
    let chart = std::fs::read_to_string(directory.path().join("page-2.svg"))?;
    assert!(html.contains("<iframe sandbox"), "what was shown is framed");
    assert!(chart.starts_with("<svg"), "{chart}");
    Ok(())
}

/// Every candidate gets the verdict of its kind. Runs with a plain `python3`: needs no packages.
fn batch() -> Result<(), Failed> {
    let mut command = python_example(Path::new("python3"), "batch.py");
    command.args(["--candidates", "60"]);
    let text = printed(&mut command)?;
    let ends = [
        ("crashes: signal, ", " times"),
        ("endless: timeout, ", " times"),
        ("right: ok, ", " times"),
        ("wrong: exception, ", " times"),
    ];
    assert_lines(&text, &ends)?;
    let counts = text.lines().filter_map(|line| line.split(' ').nth(2));
    let total: Result<u32, _> = counts.map(str::parse::<u32>).sum();
    assert_eq!(total?, 60);
    Ok(())
}

/// Each candidate ends in its own way, and the best one continues.
fn branches() -> Result<(), Failed> {
    let text = printed(&mut python_example(Path::new("python3"), "branches.py"))?;
    let ends = [
        ("constant  142467", ""),
        ("line      141866", ""),
        ("parabola  1025", ""),
        ("cube      11029260", ""),
        ("mistake   ", "exception"),
        ("endless   ", "timeout"),
        ("leaving   ", "exit"),
        ("greedy    ", "memory-limit"),
        ("parabola at 100: ", "29800"),
    ];
    assert_lines(&text, &ends)
}

/// The model of an evaluation gets its tools' results from the sandbox.
fn evaluation(python: &Path) -> Result<(), Failed> {
    let text = printed(&mut python_example(python, "evaluation.py"))?;
    let ends = [
        ("status: success", ""),
        ("bash: cat: /etc/shadow: No such file or directory", ""),
        ("", ""),
        ("a sandbox of sand", ""),
        ("python: sandbox", ""),
        ("accuracy: 1.0", ""),
    ];
    assert_lines(&text, &ends)
}

/// An agent's files and commands are in the sandbox.
fn deep_agent(python: &Path) -> Result<(), Failed> {
    let text = printed(&mut python_example(python, "deep_agent.py"))?;
    let ends = [
        ("write_file: ", "/work/primes.py"),
        (
            "execute: [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]",
            "exit code 1]",
        ),
        ("answer: The last prime below 30 is 29.", ""),
        ("file: b'print([n'", ""),
    ];
    assert_lines(&text, &ends)
}

/// An agent's shell is in the sandbox, with the files of its manifest.
fn sandbox_agent(python: &Path) -> Result<(), Failed> {
    let text = printed(&mut python_example(python, "sandbox_agent.py"))?;
    let ends = [
        (
            "exec_command: Output: | [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]",
            "",
        ),
        ("exec_command: Output: | cat: /etc/shadow: ", ""),
        ("answer: The last prime below 30 is 29.", ""),
    ];
    assert_lines(&text, &ends)
}

/// The whole frame goes in, its summary is right, and the chart is a PNG.
fn analysis(python: &Path) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let chart = directory.path().join("chart.png");
    let text = printed(
        python_example(python, "analysis.py")
            .args(["--rows", "100000", "--chart"])
            .arg(&chart),
    )?;
    assert_lines(
        &text,
        &[
            ("1.7 MB went in, in ", " ms"),
            ("", "count         sum   mean"),
            ("city", ""),
            ("Oslo ", ""),
            ("Lima ", ""),
            ("Cairo ", ""),
            ("Osaka ", ""),
            ("chart: chart.png, ['png', 'text']", ""),
        ],
    )?;
    let mut rows = 0;
    for line in text.lines().skip(3).take(4) {
        let [_, count, sum, mean] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(text.into());
        };
        rows += count.parse::<u32>()?;
        let (count, sum, mean): (f64, f64, f64) = (count.parse()?, sum.parse()?, mean.parse()?);
        assert!((sum / count - mean).abs() < 0.01, "{line}");
        // The mean of the distribution from which the amounts are drawn is 60.
        assert!((mean - 60.0).abs() < 1.0, "{line}");
    }
    assert_eq!(rows, 100_000);
    let picture = std::fs::read(chart)?;
    assert!(picture.starts_with(b"\x89PNG\r\n"), "not a PNG");
    Ok(())
}

fn server(python: &Path) -> Result<(), Failed> {
    let text = printed(python_example(python, "server.py").arg("--self-test"))?;
    assert_lines(
        &text,
        &[
            (
                "8 users at once, each with variables and files of his own",
                "",
            ),
            ("one more: 503, all sessions are taken", ""),
            ("two requests to one session: [200, 409]", ""),
            ("interrupted: interrupted, session live", ""),
            ("it exits: exit, session ended", ""),
            ("after that: 410, then 404", ""),
            ("closed, and room for others", ""),
        ],
    )
}
