//! Tests of modules that cannot be preloaded.

use sandfork::{ErrorKind, Status};

use super::interpreters::file;
use super::refused;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        a_module_that_is_not_installed,
        a_module_that_raises,
        a_module_with_a_missing_import,
        module_that_starts_a_thread_is_not_preloaded,
        a_module_whose_thread_ends_is_preloaded,
        failing_optional_module_is_not_preloaded,
        module_with_shared_memory_is_not_preloaded,
        files_written_by_a_preload_reach_no_guest,
        thread_variables_are_set_in_the_zygote_only,
        preload_sees_the_guests_writable_directory,
        a_module_that_exits,
        a_module_that_dies,
    ]
}

pub fn all(world: &World) {
    a_module_that_is_not_installed(world);
    a_module_that_raises(world);
    a_module_with_a_missing_import(world);
    a_module_that_exits(world);
    a_module_that_dies(world);
}

#[track_caller]
fn fails(world: &World, code: &str, expected: &[&str]) {
    let directory = file("awkward.py", 0o644, code);
    let recipe = standard()
        .set(format!("python.path={}", directory.path().display()))
        .set("python.preload=awkward");
    refused(world, recipe, ErrorKind::Interpreter, expected);
}

fn a_module_that_is_not_installed(world: &World) {
    let recipe = standard().set("python.preload=no_such_module");
    let expected = [
        "`no_such_module`",
        "ModuleNotFoundError",
        "install it",
        "python.preload",
    ];
    refused(world, recipe, ErrorKind::Interpreter, &expected);
}

fn a_module_that_raises(world: &World) {
    fails(
        world,
        "raise OSError('a\\nb')",
        &["`awkward`", "OSError", "python.preload"],
    );
}

// Optional or not: the module itself exists, but a module that it imports does not.
fn a_module_with_a_missing_import(world: &World) {
    let expected = ["`awkward`", "no_such_module", "python.preload"];
    fails(world, "import no_such_module", &expected);
}

fn a_module_that_exits(world: &World) {
    fails(
        world,
        "import sys\nsys.exit(3)",
        &["`awkward`", "SystemExit", "python.preload"],
    );
}

// The zygote is dead and cannot report the module; it announced the import beforehand.
fn a_module_that_dies(world: &World) {
    fails(
        world,
        "import os\nos._exit(3)",
        &["`awkward`", "ended the interpreter", "python.preload"],
    );
    fails(
        world,
        "import ctypes\nctypes.string_at(0)",
        &["`awkward`", "ended the interpreter", "python.preload"],
    );
}

/// Returns what a run prints about the modules `awkward` and `fine`, which the policy preloads.
fn output_with_preloads(world: &World, code: &str, presence: &str, settings: &[&str]) -> String {
    let directory = file("awkward.py", 0o644, code);
    let fine = directory.path().join("fine.py");
    std::fs::write(fine, "import os\nmaker = os.getpid()\n").expect("the test owns the file");
    let recipe = standard()
        .set(format!("python.path={}", directory.path().display()))
        .set(format!("python.preload=['awkward{presence}', 'fine']"));
    let recipe = settings.iter().fold(recipe, |recipe, set| recipe.set(*set));
    let code = "import os, sys\nprint('awkward' in sys.modules, 'fine' in sys.modules)\n\
                try:\n    import awkward\nexcept Exception as error:\n    print(error)\n\
                else:\n    print('imported')";
    let outcome = world.run(recipe, code);
    assert_eq!(outcome.status(), Status::Ok, "{outcome:?}");
    outcome.stdout().into_owned()
}

fn module_that_starts_a_thread_is_not_preloaded(world: &World) {
    let code =
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()";
    for settings in [&[][..], &["python.fresh=true"]] {
        for presence in ["", "?"] {
            let output = output_with_preloads(world, code, presence, settings);
            assert_eq!(output, "False True\nimported\n", "{settings:?} {presence}");
        }
    }
}

fn a_module_whose_thread_ends_is_preloaded(world: &World) {
    let code = "import threading, time\nthreading.Thread(target=time.sleep, args=(0.01,)).start()";
    assert_eq!(
        output_with_preloads(world, code, "", &[]),
        "True True\nimported\n"
    );
}

fn failing_optional_module_is_not_preloaded(world: &World) {
    let raises = "raise OSError('no licence')";
    assert_eq!(
        output_with_preloads(world, raises, "?", &[]),
        "False True\nno licence\n"
    );
    // Only the zygote has this variable.
    let dies = "import os\nif 'JE_ARROW_MALLOC_CONF' in os.environ:\n    os._exit(3)";
    assert_eq!(
        output_with_preloads(world, dies, "?", &[]),
        "False True\nimported\n"
    );
    let missing = "import no_such_module";
    let expected = "False True\nNo module named 'no_such_module'";
    assert!(output_with_preloads(world, missing, "?", &[]).starts_with(expected));
}

// These variables keep OpenBLAS, pyarrow and polars from starting threads.
fn thread_variables_are_set_in_the_zygote_only(world: &World) {
    let code = "import os\nnames = 'OPENBLAS_NUM_THREADS', 'JE_ARROW_MALLOC_CONF', '_RJEM_MALLOC_CONF'\n\
                read = [os.environ.get(name) for name in names]\n\
                del os.environ[names[0]], os.environ[names[1]]";
    let directory = file("reader.py", 0o644, code);
    let recipe = standard()
        .set(format!("python.path={}", directory.path().display()))
        .set("python.preload=reader")
        .set("env.set.OPENBLAS_NUM_THREADS=3");
    let code = "import os, reader\nprint(*reader.read, *map(os.environ.get, reader.names))";
    let outcome = world.run(recipe, code);
    let none = "background_thread:false";
    assert_eq!(outcome.stdout(), format!("1 {none} {none} 3 None None\n"));
}

// A shared page would be a channel between all guests of the zygote.
fn module_with_shared_memory_is_not_preloaded(world: &World) {
    for code in [
        "import mmap\nkept = mmap.mmap(-1, 4096)",
        "import mmap\nfile = open('/dev/shm/kept', 'wb+')\nfile.truncate(4096)\n\
         kept = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)",
    ] {
        for presence in ["", "?"] {
            assert_eq!(
                output_with_preloads(world, code, presence, &[]),
                "False True\nimported\n"
            );
        }
    }
    let private = "import mmap\nkept = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE)\n\
                   file = open(mmap.__file__, 'rb')\n\
                   shown = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)";
    assert_eq!(
        output_with_preloads(world, private, "", &[]),
        "True True\nimported\n"
    );
}

// joblib tests semaphores when it is imported, and stays serial for good if they fail.
fn files_written_by_a_preload_reach_no_guest(world: &World) {
    let code = "import _multiprocessing, os, tempfile\n\
                made = type(_multiprocessing.SemLock(0, 0, 1, '/probe', True)).__name__\n\
                places = '/work', '/tmp', '/dev/shm'\n\
                files = [open(place + '/left', 'w+') for place in places]\n\
                free = [os.statvfs(place).f_bavail * os.statvfs(place).f_frsize for place in places]\n\
                assert all(0 < size <= 64 << 20 for size in free), free\n\
                for file in files:\n    print('x', file=file, flush=True)\n\
                numbers = [file.fileno() for file in files]";
    let directory = file("writer.py", 0o644, code);
    let recipe = standard()
        .set(format!("python.path={}", directory.path().display()))
        .set("filesystem.work_size=1GiB")
        .set("filesystem.tmp_size=1GiB")
        .set("python.preload=writer");
    let sandbox = world.build(recipe);
    let code = "import os, sys\nprint('writer' in sys.modules)\nimport writer\n\
                def closed(number):\n    try:\n        os.fstat(number)\n    except OSError:\n        \
                return True\n\
                print(writer.made, [os.path.exists(place + '/left') for place in writer.places], \
                [closed(number) for number in writer.numbers])";
    for _ in 0..2 {
        let outcome = run(&sandbox, code);
        let none = "True\nSemLock [False, False, False] [True, True, True]\n";
        assert_eq!(outcome.stdout(), none, "{outcome:?}");
    }
}

// As matplotlib requires.
fn preload_sees_the_guests_writable_directory(world: &World) {
    let code = "import os\nplace = os.environ['MPLCONFIGDIR']\nos.makedirs(place, exist_ok=True)\n\
                assert os.access(place, os.W_OK) and not os.access('/etc', os.W_OK)\n\
                try:\n    open(place + '/of-the-zygote', 'w')\nexcept OSError:\n    pass";
    let directory = file("plotter.py", 0o644, code);
    let recipe = standard()
        .set(format!("python.path={}", directory.path().display()))
        .set("python.preload=plotter");
    let code = "import os, plotter\nopen(plotter.place + '/mine', 'w').close()\n\
                print(os.listdir(plotter.place), 'MPLCONFIGDIR' in os.environ, os.access.__module__)";
    let outcome = world.run(recipe, code);
    assert_eq!(outcome.stdout(), "['mine'] False posix\n", "{outcome:?}");
}
