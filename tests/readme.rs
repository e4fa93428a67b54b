//! Tests that README.md and the pages about the command and the library are true: their console
//! blocks are run, and the output is compared with what the page shows.
//!
//! `cargo test` builds the examples first; `cargo test --test readme` alone does not.
//!
//! Each block is one session of a shell in the root of the repository, in which `cargo run` starts
//! what cargo has built for the tests. Numbers that vary between runs and hosts are not compared, see
//! [`redacted`]; a line `...` matches any lines. A block that shows level `full` needs it.
//! `tests/readme/tour.py` runs the Python blocks of README.md, docs/python.md, docs/cookbook.md,
//! docs/snapshots.md and python/README.md.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

mod common;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use sandfork::Level;

use common::{examples, trial};

const README: &str = include_str!("../README.md");
const CLI: &str = include_str!("../docs/cli.md");
const COOKBOOK: &str = include_str!("../docs/cookbook.md");
const RUST: &str = include_str!("../docs/rust.md");
/// The documents whose console blocks are run.
const CONSOLES: [(&str, &str); 4] = [
    ("readme", README),
    ("cli", CLI),
    ("rust", RUST),
    ("cookbook", COOKBOOK),
];
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn main() -> ExitCode {
    let mut trials: Vec<Trial> = CONSOLES
        .iter()
        .flat_map(|&(name, document)| {
            blocks(document, "console").map(move |(line, block)| {
                let level = if block.contains("full") {
                    Level::Full
                } else {
                    Level::Standard
                };
                trial(format!("{name}_line_{line}"), level, move || replay(block))
            })
        })
        .collect();
    assert!(trials.len() > 8, "only {} blocks", trials.len());
    for (name, document) in [
        ("readme_tour", "README.md"),
        ("python_tour", "docs/python.md"),
        ("cookbook_tour", "docs/cookbook.md"),
        ("snapshots_tour", "docs/snapshots.md"),
        ("package_tour", "python/README.md"),
    ] {
        trials.push(trial(name, Level::Standard, move || tour(document)));
    }
    trials.push(trial("a_wrong_tour_is_seen", Level::Standard, wrong_tour));
    trials.push(Trial::test("the_program_is_an_example", program));
    trials.push(Trial::test("the_diagnosis_is_a_snapshot", diagnosis));
    trials.push(Trial::test("the_exit_codes_are_the_table", exit_codes));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Returns the fenced blocks of a language, each with the number of its first line.
fn blocks(
    document: &'static str,
    language: &'static str,
) -> impl Iterator<Item = (usize, &'static str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let fence = format!("\n```{language}\n");
        let start = from + document[from..].find(&fence)? + fence.len();
        let length = document[start..]
            .find("```\n")
            .expect("the block is closed");
        from = start + length;
        let line = document[..start].lines().count() + 1;
        Some((line, &document[start..from]))
    })
}

/// A command of a session and the output shown for it.
struct Step {
    command: String,
    shown: String,
}

/// Splits a block into steps. A command begins with `$ ` and continues after a line that ends with `\`.
fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = block.lines();
    while let Some(line) = lines.next() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                let mut command = command.to_owned();
                while command.ends_with('\\') {
                    command = format!("{command}\n{}", lines.next().unwrap_or_default());
                }
                let shown = String::new();
                steps.push(Step { command, shown });
            }
            (None, Some(step)) => step.shown.extend([line, "\n"]),
            (None, None) => panic!("a block begins with a command, not with {line:?}"),
        }
    }
    steps
}

/// Terminates the output of each command.
const MARK: char = '\u{1e}';

/// Makes `cargo run` start what is already built, in the profile of the tests.
const SHELL: &str = r#"
exec 2>&1
cargo() {
    [ "$1 $2" = 'run --release' ] || { echo "tests/readme.rs does not run: cargo $*"; return 1; }
    shift 2
    case $1 in
        --) shift; sandfork "$@" ;;
        --example)
            program=$EXAMPLES/$2
            [ -x "$program" ] || { echo 'build it first: cargo build --examples'; return 1; }
            shift 2
            [ "$1" != -- ] || shift
            "$program" "$@" ;;
    esac
}
"#;

/// Runs one session, in which each command sees the exit code of the previous one.
fn replay(block: &str) -> Result<(), Failed> {
    let steps = steps(block);
    let mut script = SHELL.to_owned();
    for step in &steps {
        let end = format!("\nstatus=$?; printf '{MARK}'; (exit $status)\n");
        script.extend([step.command.as_str(), &end]);
    }
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(ROOT)
        .env("PATH", path_with_sandfork())
        .env("EXAMPLES", examples())
        .stdin(Stdio::null())
        .output()?;
    let printed = String::from_utf8(output.stdout)?;
    let printed: Vec<&str> = printed.split(MARK).collect();
    if printed.len() != steps.len() + 1 {
        return Err(format!("the shell stopped early: {printed:?}").into());
    }
    for (step, printed) in steps.iter().zip(printed) {
        let (shown, got) = (redacted(&step.shown), redacted(printed));
        if !fits(&shown, &got) {
            let command = &step.command;
            return Err(format!(
                "`{command}` printed\n{printed}\nin place of\n{}",
                step.shown
            )
            .into());
        }
    }
    Ok(())
}

fn path_with_sandfork() -> OsString {
    let sandfork = Path::new(env!("CARGO_BIN_EXE_sandfork"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = sandfork.parent().unwrap().to_owned();
    std::env::join_paths([own].into_iter().chain(std::env::split_paths(&path))).unwrap()
}

/// Returns whether the lines match, where `...` matches any number of lines.
fn fits(shown: &[String], got: &[String]) -> bool {
    match shown.split_first() {
        None => got.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=got.len()).any(|skipped| fits(rest, &got[skipped..]))
        }
        Some((first, rest)) => got.first() == Some(first) && fits(rest, &got[1..]),
    }
}

/// Removes from the lines what may vary: decimal fractions and versions, the path of the
/// interpreter, resource usage, and trailing white space.
fn redacted(text: &str) -> Vec<String> {
    text.trim_end().lines().map(redacted_line).collect()
}

fn redacted_line(line: &str) -> String {
    let measured = ["\"peak_", "\"cpu_ms", "\"wall_ms"]
        .iter()
        .any(|key| line.trim_start().starts_with(key));
    let is_word = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    let mut out = String::new();
    let mut rest = line.trim_end();
    while !rest.is_empty() {
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        out += match &rest[..word] {
            it if it.contains("/bin/python") => "PYTHON",
            it if is_number(it) && (measured || it.contains('.')) => "NUMBER",
            it => it,
        };
        rest = &rest[word..];
        let gap = rest.find(is_word).unwrap_or(rest.len());
        out += &rest[..gap];
        rest = &rest[gap..];
    }
    out
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Runs the Python blocks unchanged, with a plain `python3` that imports the client from the sources.
fn tour(document: &str) -> Result<(), Failed> {
    let output = run_tour(&Path::new(ROOT).join(document))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

/// A tour whose output differs from what it shows must fail.
fn wrong_tour() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let document = directory.path().join("wrong.md");
    let text = "```python\nimport sandfork\n\nprint(sandfork.run('6 * 7').value)  # -> 43\n```\n";
    std::fs::write(&document, text)?;
    let output = run_tour(&document)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && stderr.contains("it printed\n42\nin place of\n43\n") {
        return Ok(());
    }
    Err(format!("{}: {stderr}", output.status).into())
}

fn run_tour(document: &Path) -> std::io::Result<std::process::Output> {
    Command::new("python3")
        .arg(Path::new(ROOT).join("tests/readme/tour.py"))
        .arg(document)
        .env("PYTHONPATH", Path::new(ROOT).join("python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SANDFORK_BINARY", env!("CARGO_BIN_EXE_sandfork"))
        .stdin(Stdio::null())
        .output()
}

/// The Rust program of README.md is `examples/run_once.rs`, which the console block below it runs.
fn program() -> Result<(), Failed> {
    let example = include_str!("../examples/run_once.rs");
    let (_, program) = example.split_once("\n\n").unwrap();
    let shown = blocks(README, "rust,no_run").next().map(|(_, block)| block);
    if shown == Some(program) {
        return Ok(());
    }
    Err(format!("README.md does not show examples/run_once.rs:\n{program}").into())
}

/// The documented report of `doctor` for another kind of host matches its snapshot.
fn diagnosis() -> Result<(), Failed> {
    let snapshot = include_str!(
        "../src/plan/tests/snapshots/sandfork__plan__tests__snapshots__doctor_container.snap"
    );
    let body = snapshot.splitn(3, "---\n").nth(2).unwrap().trim();
    if CLI.contains(body) {
        return Ok(());
    }
    Err(format!("docs/cli.md does not show\n{body}").into())
}

/// The table of exit codes matches `sandfork::internals::outcome::exit_code`.
fn exit_codes() -> Result<(), Failed> {
    let source = include_str!("../src/outcome/exit_code.rs");
    for row in source.lines().filter_map(|line| line.strip_prefix("//! |")) {
        if !CLI.contains(&format!("\n|{row}\n")) {
            return Err(format!("docs/cli.md lacks |{row}").into());
        }
    }
    Ok(())
}
