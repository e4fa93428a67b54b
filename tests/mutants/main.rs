//! Tests jails that lack one part each. A tracer changes the product's own system calls on their way to
//! the kernel, so that the shipped code is tested.
//!
//! Each mutant must be detected: by the kernel, which then fails a later step, by the worker or its
//! supervisor, which verify the jail, or by a guest whose findings differ from those in `sound/`.
//! `cargo xtask verify mutants` tries all mutants; otherwise, as in CI, a fixed sample with one of each
//! kind is tried.

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
        #[path = "../common/mod.rs"]
        #[allow(dead_code, reason = "what other tests share is there too")]
        mod common;
        #[path = "../common/family.rs"]
        #[allow(dead_code, reason = "what other tracers tell apart is there too")]
        mod family;
        #[path = "../common/traced.rs"]
        #[allow(dead_code, reason = "what other tracers do is there too")]
        mod traced;

        mod bench;
        mod edit;
        mod equivalent;
        mod filters;
        mod fixture;
        mod memory;
        mod mutant;
        mod off;
        mod parts;
        mod sample;
        mod sound;
        mod step;
        mod subject;
        mod tracer;
        mod trials;
        mod verdict;
        mod without;

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
