//! Tests of what programs learn about the machine: the limits of the policy and nothing of the host.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use sandfork::Status;
use sandfork::internals::host::TimeNamespaces;

use crate::check::{ended, fine};
use crate::recipe::{Recipe, standard, strict};
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        a_guest_sees_its_limits,
        a_fresh_interpreter_sees_its_limits,
        limits_are_visible_without_proc,
        programs_that_describe_the_machine_work,
        a_package_sees_the_limits_while_it_is_preloaded,
        clocks_start_with_the_zygote,
        the_interpreter_shows_no_arguments,
        calls_with_bad_arguments_get_the_kernels_errors,
        notified_calls_count_as_guest_time,
    ]
}

/// Half a CPU appears as one CPU with a quota.
fn limited() -> Recipe {
    standard()
        .set("limits.cores=0.5")
        .set("limits.memory=300MiB")
        .set("limits.pids=20")
}

const CALLS: &str = "
import os
size = os.sysconf('SC_PAGESIZE')
assert os.sysconf('SC_PHYS_PAGES') * size == 300 << 20
assert 0 < os.sysconf('SC_AVPHYS_PAGES') * size < 300 << 20
assert os.cpu_count() == 1 and os.sysconf('SC_NPROCESSORS_ONLN') == 1
assert os.sched_getaffinity(0) == os.sched_getaffinity(os.getpid()) == {0}
";

const SYS: &str = "
def read(path):
    with open(path) as file:
        return file.read().strip()

cgroup = '/sys/fs/cgroup/'
assert read(cgroup + 'memory.max') == read(cgroup + 'memory/memory.limit_in_bytes') == str(300 << 20)
assert read(cgroup + 'cpu.max') == '50000 100000'
assert read(cgroup + 'pids.max') == '20'
cpu = '/sys/devices/system/cpu/'
assert read(cpu + 'online') == read(cpu + 'present') == '0'
assert [name for name in os.listdir(cpu) if name[3:].isdecimal()] == ['cpu0']
assert read(cpu + 'cpu0/topology/core_siblings_list') == read(cpu + 'cpu0/topology/thread_siblings_list') == '0'
";

const PROC: &str = "
import re
meminfo = dict(re.findall(r'(\\w+): +(\\d+) kB', read('/proc/meminfo')))
assert meminfo['MemTotal'] == str(300 << 10) and 0 < int(meminfo['MemAvailable']) < 300 << 10
assert re.findall(r'^processor\\s*: (\\d+)', read('/proc/cpuinfo'), re.M) == ['0']
assert re.findall(r'^cpu(\\d+)', read('/proc/stat'), re.M) == ['0']
assert os.getloadavg() == (0, 0, 0)
assert read('/proc/sys/kernel/osrelease') == os.uname().release in read('/proc/version')
assert set(os.listdir('/proc/sys')) == {'fs', 'kernel', 'net', 'vm'}
assert all(name.isdecimal() or name in ('self', 'thread-self') for name in os.listdir('/proc'))
for name in ('kcore', 'kallsyms', 'interrupts', 'diskstats', 'sysrq-trigger', 'keys', 'mounts', 'net'):
    assert not os.path.lexists('/proc/' + name), name
";

fn a_guest_sees_its_limits(world: &World) {
    let code = format!("{CALLS}{SYS}{PROC}");
    fine(&world.run(limited(), &code));
}

fn a_fresh_interpreter_sees_its_limits(world: &World) {
    let code = format!("{CALLS}{SYS}{PROC}");
    fine(&world.run(limited().set("python.fresh=true"), &code));
}

fn limits_are_visible_without_proc(world: &World) {
    let recipe = limited().set("filesystem.proc=false");
    let code = format!("{CALLS}{SYS}assert not os.path.exists('/proc')\n");
    fine(&world.run(recipe, &code));
    let code = "import os\nassert os.cpu_count() == 1 and not os.listdir('/sys/block')";
    fine(&world.run(strict(), code));
}

// Of the programs that the host has.
fn programs_that_describe_the_machine_work(world: &World) {
    let code = "
import os, shutil, subprocess

del os.environ['OMP_NUM_THREADS']
ONE, MIB = '1', str(300 << 10)
for command, expected in (
    ('nproc', ONE),
    ('free', MIB),
    ('lscpu', 'NUMA'),
    ('lscpu --parse=core', '0'),
    ('uptime', 'load average: 0.00'),
    ('ps aux', 'ps aux'),
    ('ps -eo pid,etime,pcpu,start,args', 'ELAPSED'),
    ('top -bn1', 'Tasks'),
    ('vmstat', 'swpd'),
    ('uname -r', os.uname().release),
    ('df /work', '/work'),
):
    command = command.split()
    if shutil.which(command[0]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr and expected in done.stdout, (command, done)
";
    fine(&world.run(limited(), code));
}

fn a_package_sees_the_limits_while_it_is_preloaded(world: &World) {
    let place = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
    let module = "import os\nwith open('/proc/meminfo') as file:\n    line = file.readline()\ncount = os.cpu_count()\n";
    std::fs::write(place.path().join("looked.py"), module).expect("the file is written");
    let recipe = limited()
        .set(format!("python.path={}", place.path().display()))
        .set("python.preload=looked");
    let code = "import sys\nassert 'looked' in sys.modules\nimport looked\nprint(looked.line.split()[1], looked.count)";
    let outcome = world.run(recipe, code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "307200 1\n");
}

// Also the boot time and the ages of processes, which programs compute from files.
fn clocks_start_with_the_zygote(world: &World) {
    if world.host.machine.time_namespaces == TimeNamespaces::Unavailable {
        return;
    }
    let now =
        || Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every kernel has it"));
    let before = now();
    let sandbox = world.build(standard());
    let code = "
import time
btime = next(int(line.split()[1]) for line in open('/proc/stat') if line.startswith('btime'))
started = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19])
uptime = float(open('/proc/uptime').read().split()[0])
assert btime <= btime + started / 100 <= time.time() + 1 and started / 100 < uptime
print(time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), time.time() - btime)
";
    let outcome = run(&sandbox, code);
    fine(&outcome);
    // The time namespace's offsets are in whole seconds.
    let lived = now().saturating_sub(before).as_secs_f64() + 2.0;
    for clock in outcome.stdout().split_ascii_whitespace() {
        let clock: f64 = clock.parse().expect("a number");
        assert!((0.0..lived).contains(&clock), "{clock} of {lived}");
    }
}

// `ps` would otherwise print the zygote's whole program.
fn the_interpreter_shows_no_arguments(world: &World) {
    let code = "
for process in ('self', '1'):
    arguments = open('/proc/%s/cmdline' % process).read().split('\\0')
    assert 'python' in arguments[0] and arguments[1:] == [''], arguments
";
    fine(&world.run(standard(), code));
}

const BAD: &str = "
import ctypes, errno, mmap, os

libc = ctypes.CDLL(None, use_errno=True)
SYSINFO, AFFINITY = (99, 204) if os.uname().machine == 'x86_64' else (179, 123)

def call(*arguments):
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(word) if isinstance(word, int) else word for word in arguments))
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]

room = ctypes.create_string_buffer(b'x' * 256, 256)
assert call(SYSINFO, room) == 0 and room.raw[112:] == b'x' * 144
for address in (0, 8, -4096, 1 << 46, (1 << 63) - 8):
    assert call(SYSINFO, address) == 'EFAULT' == call(AFFINITY, 0, 128, address), hex(address)
assert call(AFFINITY, 0, 4, room) == call(AFFINITY, 0, 0, room) == call(AFFINITY, 0, 12, room) == 'EINVAL'
room = ctypes.create_string_buffer(b'x' * 64, 64)
assert call(AFFINITY, 0, 64, room) == 8 and room.raw == bytes([1]) + bytes(7) + b'x' * 56
# The last page that the process has, and none behind it.
pages = mmap.mmap(-1, 8192)
address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
assert libc.munmap(ctypes.c_void_p(address + 4096), 4096) == 0
assert call(SYSINFO, address + 4096 - 112) == 0
assert call(SYSINFO, address + 4096 - 104) == 'EFAULT'
";

fn calls_with_bad_arguments_get_the_kernels_errors(world: &World) {
    fine(&world.run(limited(), BAD));
}

// The supervisor answers the calls, and the time of each answer counts as the guest's.
fn notified_calls_count_as_guest_time(world: &World) {
    let code = "
import os, threading

def ask():
    while True:
        os.sched_getaffinity(0)

for _ in range(4):
    threading.Thread(target=ask).start()
";
    let recipe = standard().set("limits.cpu=1s").set("limits.wall=60s");
    let outcome = world.run(recipe, code);
    ended(&outcome, Status::CpuLimit);
}
