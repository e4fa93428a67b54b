//! Tests that reach every status with a real guest.

mod denials;
pub mod endings;
mod files;
mod frames;
mod memory;
mod output;
mod phases;
mod processes;
mod requests;
mod survivors;
mod time;

use crate::test::Test;

pub fn tests() -> Vec<Test> {
    [
        denials::tests(),
        endings::tests(),
        time::tests(),
        memory::tests(),
        processes::tests(),
        requests::tests(),
        output::tests(),
        phases::tests(),
        files::tests(),
        frames::tests(),
        survivors::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
