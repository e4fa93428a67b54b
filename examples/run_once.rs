//! Runs one snippet on the built-in default policy and prints its outcome.
//!
//! `cargo run --release --example run_once -- 'print(6 * 7)'`

use sandfork::Sandbox;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let code = std::env::args().nth(1);
    let sandbox = Sandbox::builder().build()?;
    let outcome = sandbox.run(code.as_deref().unwrap_or("print(6 * 7)"))?;
    print!("{}", outcome.stdout());
    if let Some(error) = outcome.error() {
        eprint!("{}", error.traceback);
    }
    let milliseconds = outcome.usage().wall.as_secs_f64() * 1e3;
    println!("{} in {milliseconds:.1} ms", outcome.status());
    println!("enforced: {}", outcome.enforced());
    Ok(())
}
