//! Tests of what a policy or the seccomp filter permits for real programs.

use sandfork::internals::host::CgroupSupport;

use crate::check::fine;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    tests![
        harmless_calls_are_allowed,
        guest_programs_run_if_the_policy_allows,
        guest_programs_are_refused_by_default,
        common_system_files_exist,
        var_tmp_is_a_link_to_tmp,
        host_files_are_shown_at_their_paths,
        root_has_the_usual_directories,
        memfds_without_flags_are_not_executable,
        dev_tty_is_the_guests_own_terminal,
        interpreter_headers_are_shown,
    ]
}

const NOTHING: &str = "
import os, resource, subprocess, sys

os.setresuid(-1, -1, -1); os.setresgid(-1, -1, -1)
os.setuid(os.getuid()); os.setgid(os.getgid())
os.setreuid(os.getuid(), os.getuid()); os.setregid(os.getgid(), os.getgid())
os.sched_setscheduler(0, os.sched_getscheduler(0), os.sched_getparam(0))
os.sched_setaffinity(0, os.sched_getaffinity(0))
for pid in (0, os.getpid()):
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
assert subprocess.run(['/bin/true'], user=os.getuid(), group=os.getgid()).returncode == 0
pid = os.posix_spawn('/bin/true', ['true'], {}, resetids=True)
assert os.waitpid(pid, 0)[1] == 0
for other in (0, 1, 65534):
    for change in (os.setuid, os.setgid, os.seteuid, os.setegid):
        try:
            change(other)
            sys.exit('took id %d' % other)
        except PermissionError:
            pass
try:
    resource.prlimit(1, resource.RLIMIT_NOFILE)
    sys.exit('sees the limits of the init')
except PermissionError:
    pass
print('fine')
";

fn harmless_calls_are_allowed(world: &World) {
    let outcome = world.run(standard(), NOTHING);
    fine(&outcome);
}

/// Copies a program and a library, as a compiler would write them.
const PROGRAM: &str = "
import ctypes, os, shutil, subprocess

def tried(act):
    try:
        return act()
    except OSError:
        return 'refused'

def run(directory):
    path = directory + '/program'
    shutil.copyfile('/bin/echo', path)
    os.chmod(path, 0o755)
    return subprocess.run([path, 'ran'], capture_output=True, text=True).stdout.strip()

def load(directory):
    path = directory + '/library.so'
    source = next(path for path in map(str, (line.split()[-1] for line in open('/proc/self/maps'))) if '/libc.so' in path)
    shutil.copyfile(source, path)
    return 'loaded' if ctypes.CDLL(path) else ''

print(*(tried(lambda: act(place)) for place in ('/work', '/tmp', '/dev/shm') for act in (run, load)))
";

fn printed(world: &World, recipe: Recipe) -> String {
    let outcome = world.run(recipe, PROGRAM);
    fine(&outcome);
    outcome.stdout().trim().to_owned()
}

fn guest_programs_run_if_the_policy_allows(world: &World) {
    let printed = printed(world, standard().set("filesystem.work_exec=true"));
    assert_eq!(printed, "ran loaded refused refused refused refused");
}

fn guest_programs_are_refused_by_default(world: &World) {
    let printed = printed(world, standard());
    assert_eq!(printed, "refused refused refused refused refused refused");
}

// libc resolves the names; the `mimetypes` module reads the types.
fn common_system_files_exist(world: &World) {
    let code = "\
import mimetypes, socket
assert socket.getservbyname('https') == 443 and socket.getprotobyname('tcp') == 6
assert mimetypes.read_mime_types('/etc/mime.types')['.csv'] == 'text/csv'
assert 'req' in open('/etc/ssl/openssl.cnf').read()
assert socket.gethostbyname(socket.gethostname()) == '127.0.0.1'
";
    fine(&world.run(standard(), code));
}

// The link exists unless the interpreter is below /var/tmp, as in the tests of an ordinary user.
fn var_tmp_is_a_link_to_tmp(world: &World) {
    let code = "\
import os, sys, tempfile
assert os.path.islink('/var/tmp') is not sys.prefix.startswith('/var/tmp')
with tempfile.NamedTemporaryFile(dir='/tmp') as file:
    if os.path.islink('/var/tmp'):
        assert os.listdir('/var/tmp') == [os.path.basename(file.name)]
";
    fine(&world.run(standard(), code));
}

fn host_files_are_shown_at_their_paths(world: &World) {
    let place = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
    std::fs::write(place.path().join("shown"), "the host's").expect("the file is written");
    let shown = place.path().display();
    let code = format!("print(open('{shown}/shown').read())");
    let outcome = world.run(
        standard().set(format!("filesystem.read={shown}")),
        code.as_str(),
    );
    fine(&outcome);
    assert_eq!(outcome.stdout(), "the host's\n");
    let code = "print(len(open('/etc/passwd').read()) > 0, len(open('/etc/mime.types').read()))";
    let host = std::fs::read("/etc/mime.types").map(|it| it.len());
    if let Ok(length) = host {
        let outcome = world.run(standard().set("filesystem.read=/etc/mime.types"), code);
        assert_eq!(outcome.stdout(), format!("True {length}\n"));
    }
}

fn root_has_the_usual_directories(world: &World) {
    let code = "\
import os
assert {'dev', 'etc', 'tmp', 'usr', 'work'} <= set(os.listdir('/'))
assert {'null', 'shm', 'ptmx'} <= set(os.listdir('/dev'))
assert os.listdir('/var') == ['tmp']
try:
    open('/.witness')
except PermissionError:
    print('refused')
";
    let outcome = world.run(standard(), code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "refused\n");
}

/// The filter permits only memory files that can never be executable; without a flag, `os.memfd_create` gets those.
const MEMORY_FILES: &str = "
import errno, fcntl, mmap, os

def refused(name, *flags):
    try:
        os.memfd_create(name, *flags)
    except OSError as error:
        return error.errno == errno.EPERM

given = '%s'
if given == 'none':
    assert refused('x') and refused('x', 0)
else:
    for flags in ((), (0,), (os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC,)):
        file = os.memfd_create('x', *flags)
        os.ftruncate(file, 1 << 20)
        with mmap.mmap(file, 1 << 20) as mapped:
            mapped[:4] = b'mine'
        assert os.pread(file, 4, 0) == b'mine'
        assert os.get_inheritable(file) == (flags == (0,)), flags
        assert os.fstat(file).st_mode & 0o111 == 0
        try:
            os.fchmod(file, 0o777)
            raise SystemExit('made it executable')
        except PermissionError:
            pass
MFD_EXEC = 0x10
assert refused('x', MFD_EXEC)
";

fn memfds_without_flags_are_not_executable(world: &World) {
    // Without a cgroup to account for them, memory files are refused. Before Linux 6.3, all of them are executable.
    let machine = &world.host.machine;
    let counted = !matches!(machine.cgroup, CgroupSupport::Nowhere(_));
    let given = if counted && (machine.kernel.major, machine.kernel.minor) >= (6, 3) {
        "sealed"
    } else {
        "none"
    };
    fine(&world.run(standard(), &MEMORY_FILES.replace("%s", given)));
}

// In the process with the guest's own controlling terminal, `/dev/tty` is that terminal; elsewhere it is none.
fn dev_tty_is_the_guests_own_terminal(world: &World) {
    let code = "\
import errno, os, pty
try:
    open('/dev/tty')
except OSError as refused:
    assert refused.errno == errno.ENXIO
else:
    raise SystemExit('a worker has a terminal')
pid, terminal = pty.fork()
if not pid:
    print('hello', file=open('/dev/tty', 'w'), flush=True)
    os._exit(0)
assert b'hello' in os.read(terminal, 100)
";
    fine(&world.run(standard(), code));
}

fn interpreter_headers_are_shown(world: &World) {
    let header = "include/python' + '.'.join(map(str, sys.version_info[:2])) + '/Python.h";
    let code = format!("import os, sys; print(os.path.exists(sys.base_prefix + '/{header}'))");
    for python in &world.pythons {
        let recipe = standard().python(&python.venv);
        let inside = world.run(recipe, code.as_str());
        fine(&inside);
        let outside = std::process::Command::new(python.venv.join("bin/python"))
            .args(["-c", &code])
            .output()
            .expect("the interpreter starts");
        let outside = String::from_utf8(outside.stdout).expect("a text");
        assert_eq!(inside.stdout(), outside, "{}", python.version_text());
    }
}
