//! What sessions hold between cells.

use sandfork::Status;
use sandfork::session::SessionState;

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        a_failed_cell_gives_back_what_it_held,
        a_cell_that_runs_out_of_memory_leaves_it_to_the_next
    ]
}

/// Whether the guest has less than 60 MiB in memory.
const IS_SMALL: &str = "import re\n\
    int(re.search('VmRSS:\\s*(\\d+)', open('/proc/self/status').read())[1]) < 60 << 10";

fn a_failed_cell_gives_back_what_it_held(world: &World) {
    let mut session = open(world, standard());
    let code = "def fail():\n\
                \x20   held = bytearray(100 << 20)\n\
                \x20   raise ValueError(len(held))\n\
                fail()";
    assert_ended(
        &run(&mut session, code),
        Status::Exception,
        SessionState::Live,
    );
    // No cycle has to be collected first.
    assert_eq!(value(&mut session, IS_SMALL), "True");
}

fn a_cell_that_runs_out_of_memory_leaves_it_to_the_next(world: &World) {
    let mut session = open(world, standard().set("limits.memory=96MiB"));
    // What the cell frees lies below an object that stays: blocks this small are in the C library's heap.
    let code = "stays = []\n\
                def fill():\n\
                \x20   held = []\n\
                \x20   try:\n\
                \x20       while True: held.append(bytearray(64 << 10))\n\
                \x20   except MemoryError:\n\
                \x20       stays.append(held.pop())\n\
                \x20       raise\n\
                fill()";
    assert_ended(
        &run(&mut session, code),
        Status::MemoryLimit,
        SessionState::Live,
    );
    assert_eq!(value(&mut session, IS_SMALL), "True");
}
