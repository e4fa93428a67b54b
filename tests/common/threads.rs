//! The number of tests that run at once.

use std::thread::available_parallelism;

use libtest_mimic::Arguments;

/// Returns the arguments of this process. Without `--test-threads`, three tests run for every two CPUs, because many of
/// them mostly wait for a limit.
pub fn arguments() -> Arguments {
    let mut arguments = Arguments::from_args();
    let processors = available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments
        .test_threads
        .or(Some((processors * 3).div_ceil(2)));
    arguments
}
