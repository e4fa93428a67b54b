//! Runs the product without one of its layers: `--without LAYER COMMAND...`, as root.

use std::cell::RefCell;
use std::process::{Command, ExitCode};
use std::rc::Rc;

use sandfork::Layer;

use crate::mutant::Mutation;
use crate::off::Off;
use crate::tracer::Tracer;

/// The first argument that selects this mode.
pub const OPTION: &str = "--without";

/// The exit status of a process that could not remove the layer.
const FAILED: u8 = 125;

/// Waits to be traced before it executes the command.
const WAIT: &str = "kill -STOP $$; exec \"$@\"";

pub fn main(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let name = arguments.next().unwrap_or_default();
    let Some(layer) = name.parse::<Layer>().ok() else {
        eprintln!("mutants: `{name}` is no layer");
        return ExitCode::from(FAILED);
    };
    let mutation = Mutation::new(Vec::new(), Some(Off::new(layer)));
    let trouble = mutation.trouble();
    let mut command = Command::new("sh");
    command.args(["-c", WAIT, "sh"]).args(arguments);
    let changes = Box::new(Rc::new(RefCell::new(mutation)));
    let status = Tracer::follow(&mut command, changes);
    if let Some(trouble) = trouble.take() {
        eprintln!("mutants: {layer} could not be taken away: {trouble}");
        return ExitCode::from(FAILED);
    }
    ExitCode::from(u8::try_from(status).unwrap_or(FAILED))
}
