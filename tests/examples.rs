//! The examples do what they say.
//!
//! `cargo test` builds them first; `cargo test --test examples` alone does not.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

mod common;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed};
use sandfork::policy::Level;

use common::{examples, trial};

type Test = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    let tests: [(&str, Test); 7] = [
        ("hello", hello),
        ("run_once", run_once),
        ("run_once_with_an_exception", run_once_with_an_exception),
        ("custom_policy", custom_policy),
        ("embedded_server", embedded_server),
        ("session", session),
        ("notebook", notebook),
    ];
    let trials = tests.map(|(name, test)| trial(name, Level::Standard, test));
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// What a program printed to stdout; it must end well.
fn printed(program: &Path, arguments: &[&str]) -> Result<String, Failed> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        let program = program.display();
        format!("{program}: {error}; `cargo build --examples` builds it")
    })?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {stderr}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn example(name: &str, arguments: &[&str]) -> Result<String, Failed> {
    printed(&examples().join(name), arguments)
}

/// Each line, in order, begins with its part and ends with it.
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
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/hello.py");
    let text = printed(Path::new(env!("CARGO_BIN_EXE_sandfork")), &["run", script])?;
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

/// With a plain `python3`, which finds the client in the sources.
fn notebook() -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir()?;
    let page = directory.path().join("page.html");
    let mut command = Command::new("python3");
    command
        .arg(root.join("examples/python/notebook.py"))
        .arg(root.join("examples/python/notebook_cells.py"))
        .arg(&page)
        .args(["--patience", "1"])
        .env("PYTHONPATH", root.join("python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SANDFORK_BINARY", env!("CARGO_BIN_EXE_sandfork"))
        .stdin(Stdio::null());
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    assert_lines(
        &String::from_utf8(output.stdout)?,
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
