//! What sessions hold between cells.

use sandfork::Status;
use sandfork::session::SessionState;

use super::{assert_ended, open, run, value};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![a_failed_cell_gives_back_what_it_held]
}

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
    let resident = "import re\n\
                    int(re.search('VmRSS:\\\\s*(\\\\d+)', open('/proc/self/status').read())[1]) < 60 << 10";
    assert_eq!(value(&mut session, resident), "True");
}
