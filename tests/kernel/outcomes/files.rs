//! Tests of the file limits.

use sandfork::{LimitName, Mechanism};

use crate::check::{fine, limited, shown};
use crate::recipe::{Recipe, standard};
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        full_work,
        full_tmp,
        no_more_files,
        no_more_files_in_tmp,
        a_file_too_large,
        too_many_open,
        freed_space_is_usable_again
    ]
}

fn small() -> Recipe {
    standard()
        .set("filesystem.work_size=8MiB")
        .set("filesystem.work_inodes=100")
        .set("filesystem.tmp_size=8MiB")
        .set("filesystem.tmp_inodes=100")
        .set("limits.file_size=6MiB")
        .set("limits.open_files=50")
}

fn fill(directory: &str) -> String {
    format!(
        "for number in range(100):\n    \
             with open(f'{directory}/{{number}}', 'wb') as file: file.write(bytes(1 << 20))\n"
    )
}

fn create(directory: &str) -> String {
    format!("for number in range(1000): open(f'{directory}/{{number}}', 'w').close()")
}

fn hits(world: &World, code: &str, name: LimitName, by: Mechanism) {
    let outcome = world.run(small(), code);
    limited(&outcome, name, by);
    assert_eq!(outcome.exit_code(), 123);
    assert!(
        outcome.usage().written_bytes <= Some(16 << 20),
        "{}",
        shown(&outcome)
    );
    assert_eq!(
        outcome.error().map(|error| error.name.as_str()),
        Some("OSError")
    );
}

fn full_work(world: &World) {
    hits(world, &fill("/work"), LimitName::WorkSize, Mechanism::Tmpfs);
}

fn full_tmp(world: &World) {
    hits(world, &fill("/tmp"), LimitName::TmpSize, Mechanism::Tmpfs);
}

fn no_more_files(world: &World) {
    hits(
        world,
        &create("/work"),
        LimitName::WorkInodes,
        Mechanism::Tmpfs,
    );
}

fn no_more_files_in_tmp(world: &World) {
    hits(
        world,
        &create("/tmp"),
        LimitName::TmpInodes,
        Mechanism::Tmpfs,
    );
}

fn a_file_too_large(world: &World) {
    let code =
        "with open('large', 'wb') as file:\n    for _ in range(8): file.write(bytes(1 << 20))";
    hits(world, code, LimitName::FileSize, Mechanism::Rlimit);
}

fn too_many_open(world: &World) {
    let code = "kept = []\nwhile True: kept.append(open('/dev/null'))";
    hits(world, code, LimitName::OpenFiles, Mechanism::Rlimit);
}

fn freed_space_is_usable_again(world: &World) {
    let sandbox = world.build(small());
    let code = "import os\n\
                for _ in range(20):\n    \
                    with open('again', 'wb') as file: file.write(bytes(5 << 20))\n    \
                    os.remove('again')\n";
    let outcome = run(&sandbox, code);
    fine(&outcome);
    // The next run starts with empty directories.
    let outcome = run(
        &sandbox,
        "import os\nprint(os.getcwd(), os.listdir(), os.listdir('/tmp'))",
    );
    fine(&outcome);
    assert_eq!(outcome.stdout(), "/work [] []\n");
}
