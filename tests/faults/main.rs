//! Fault injection: system calls that fail, steps that are skipped, processes that are killed. All
//! faults are injected from outside into the unmodified program.
//!
//! `cargo xtask verify faults` injects all faults. `SANDFORK_FAULTS=sample` injects a fixed sample in every test.
//! Without it, as in CI, that sample is injected in some of the tests.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test program"
)]

use std::process::ExitCode;

// The tracer changes registers, whose layout depends on the architecture.
cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        #[path = "../common/apart.rs"]
        mod apart;
        #[path = "../common/mod.rs"]
        #[allow(dead_code, reason = "what other tests share is there too")]
        mod common;
        #[path = "../common/family.rs"]
        mod family;
        #[path = "../landlock_level/situation.rs"]
        #[allow(dead_code, reason = "those tests have an ordinary user there too")]
        mod situation;
        #[path = "../common/traced.rs"]
        #[allow(dead_code, reason = "what other tracers do is there too")]
        mod traced;

        mod bench;
        mod copies;
        mod fault;
        mod found;
        mod kills;
        mod losses;
        mod sabotage;
        mod scale;
        mod set_up;
        mod setting;
        mod sound;
        mod subject;
        mod task;
        mod tracer;
        mod trials;

        fn main() -> ExitCode {
            trials::main()
        }
    } else {
        fn main() -> ExitCode {
            let reason = "not an x86-64 machine";
            let ignored = move || Ok(libtest_mimic::Completion::ignored_with(reason));
            let all = libtest_mimic::Trial::ignorable_test("all", ignored);
            libtest_mimic::run(&libtest_mimic::Arguments::from_args(), vec![all]).exit_code()
        }
    }
}
