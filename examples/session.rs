//! A session: cells that share variables, and a host tool that they call.
//!
//! `cargo run --release --example session`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandfork::session::{Cell, CellReport, NamedError, ToolArguments};
use sandfork::{Sandbox, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sandbox = Arc::new(Sandbox::builder().build()?);
    let mut session = sandbox.session()?;

    // Runs in this process when the guest calls it by name. The data it captures stays here.
    let prices = BTreeMap::from([("apple", 0.5), ("pear", 0.75)]);
    session.tool("price", move |call: ToolArguments| {
        let name = call.args.first().and_then(Value::as_str).unwrap_or("");
        let missing = || NamedError::new("LookupError", format!("no price of {name}"));
        let price = prices.get(name).copied().ok_or_else(missing)?;
        Ok(price.into())
    })?;

    session.set("basket", Value::dict([("apple", 4), ("pear", 2)]))?;
    print_report(&session.run("sum(price(name) * count for name, count in basket.items())")?);
    print_report(&session.run("price('plum')")?);
    // The time limit interrupts the cell; the session and its variables are still there.
    print_report(&session.run(Cell::new("while True: pass").wall(Duration::from_millis(200)))?);
    print_report(&session.run("len(basket)")?);
    Ok(())
}

fn print_report(report: &CellReport) {
    let outcome = report.outcome();
    let text = match (outcome.value(), outcome.error()) {
        (Some(value), _) => value.to_string(),
        (None, Some(error)) => error.traceback.lines().last().unwrap_or("").to_owned(),
        (None, None) => String::new(),
    };
    println!("{}: {text}", outcome.status());
}
