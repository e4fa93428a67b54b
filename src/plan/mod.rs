//! Policy and host become a plan.

pub mod seccomp;
