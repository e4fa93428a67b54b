//! Time, randomness and what the machine is.

use super::super::rule::{Rule, allow, describe};

pub(super) const RULES: &[Rule] = &[
    allow(
        "what time it is",
        "clock_gettime clock_getres gettimeofday time",
    ),
    allow(
        "sleep until a time (time.sleep)",
        "nanosleep clock_nanosleep",
    ),
    allow(
        "timers that send a signal to the caller or are read (signal.setitimer, faulthandler)",
        "alarm getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun \
         timer_delete timerfd_create timerfd_settime timerfd_gettime",
    ),
    allow("random bytes (os.urandom, secrets)", "getrandom"),
    allow("kernel's name and release (os.uname)", "uname"),
    describe("memory in all (os.sysconf): limits.memory", "sysinfo"),
];
