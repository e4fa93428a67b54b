//! A custom policy with per-run overrides, and the contents of an outcome.
//!
//! `cargo run --release --example custom_policy`

use sandfork::{FileSystem, Override, Policy, Request, Sandbox, Status};

const POLICY: &str = r#"
extends = "strict"
description = "arithmetic for strangers"

[imports]
allow = ["math", "statistics", "fractions"]

[limits]
wall = "2s"
memory = "128MiB"
output = "64KiB"
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("sandfork-example-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("arithmetic.toml");
    std::fs::write(&file, POLICY)?;
    let overrides: Vec<Override> = vec!["limits.wall=1s".parse()?];
    let policy = Policy::load(&file.display().to_string(), &overrides, &FileSystem)?;
    std::fs::remove_dir_all(&directory)?;

    let sandbox = Sandbox::builder().policy(policy).build()?;
    for (name, code) in [
        (
            "a mean",
            "import statistics\nprint(statistics.mean([1, 2, 3, 4]))",
        ),
        ("an import that is not listed", "import subprocess"),
        ("an endless loop", "while True: pass"),
        ("too much memory", "x = bytearray(1 << 30)"),
        ("too much output", "while True: print('x' * 1000)"),
    ] {
        let outcome = sandbox.run(Request::python(code).filename(format!("<{name}>")))?;
        let text = match (outcome.status(), outcome.error()) {
            (Status::Ok, _) => outcome.stdout().trim().to_owned(),
            (_, Some(error)) => format!("{}: {}", error.name, error.message),
            (_, None) => String::new(),
        };
        println!(
            "{name}: {} after {:.0} ms. {text}",
            outcome.status(),
            outcome.usage().wall.as_secs_f64() * 1e3,
        );
    }
    Ok(())
}
