//! Time, randomness and the description of the machine.

use super::super::rule::{Rule, allow, describe};

pub(super) const RULES: &[Rule] = &[
    allow(
        "read the clocks",
        "clock_gettime clock_getres gettimeofday time",
    ),
    allow("sleep (time.sleep)", "nanosleep clock_nanosleep"),
    allow(
        "timers that send a signal to the caller or are read (signal.setitimer, faulthandler)",
        "alarm getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun \
         timer_delete timerfd_create timerfd_settime timerfd_gettime",
    ),
    allow("random bytes (os.urandom, secrets)", "getrandom"),
    allow("name and release of the kernel (os.uname)", "uname"),
    describe("total memory (os.sysconf): limits.memory", "sysinfo"),
];
