//! Runs one snippet on the built-in default policy and prints what came of it.
//!
//! `cargo run --release --example run_once -- 'print(6 * 7)'`

use sandfork::Sandbox;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let code = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "print(6 * 7)".to_owned());
    let sandbox = Sandbox::builder().build()?;
    let outcome = sandbox.run(code)?;
    print!("{}", outcome.stdout());
    eprint!("{}", outcome.stderr());
    if let Some(error) = outcome.error() {
        eprint!("{}", error.traceback);
    }
    println!(
        "{} in {:.1} ms, enforced: {}",
        outcome.status(),
        outcome.usage().wall.as_secs_f64() * 1e3,
        outcome.enforced(),
    );
    Ok(())
}
