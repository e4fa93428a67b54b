//! The recipe of an image, and the units of systemd, are read as what would use them reads them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::args::Arguments;
use crate::config::Config;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// What comes after this word, in each line that begins with it.
fn after<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let lines = text.lines();
    lines.filter_map(|line| line.strip_prefix(word)).collect()
}

/// The arguments of a server that is started in this way.
fn served(command: &[String]) -> Arguments {
    let program = Path::new(&command[0]).file_name().expect("a name");
    assert_eq!(
        (program.to_str(), command[1].as_str()),
        (Some("sandfork"), "server")
    );
    Arguments::try_parse_from(&command[1..]).expect("the server takes them")
}

#[test]
fn the_image_starts_what_it_has() {
    let recipe = text("packaging/Containerfile");
    let one = |word: &str| {
        let found = after(&recipe, word);
        assert_eq!(found.len(), 1, "{word}");
        found[0]
    };
    let list = |text: &str| serde_json::from_str::<Vec<String>>(text).expect("a list");
    let mut command = list(one("ENTRYPOINT "));
    command.extend(list(one("CMD ")));
    let config = served(&command)
        .serve
        .sandboxes
        .config
        .expect("it names its configuration");

    // Each file that it copies from the repository is there, and the configuration is one of them.
    let mut copied = BTreeSet::new();
    for copy in after(&recipe, "COPY ") {
        let words: Vec<_> = copy.split(' ').collect();
        let (to, from) = words.split_last().expect("a target");
        if !from[0].starts_with("--from=") {
            let there = from.iter().all(|path| root().join(path).exists());
            assert!(there, "{copy}");
            copied.insert(PathBuf::from(to));
        }
    }
    assert!(copied.contains(&config), "{copied:?}");

    // The programs are those of the packages that are installed.
    for path in after(&recipe, "RUN cargo install --locked --path ") {
        let package = path.strip_suffix(" --root /out").expect("a path");
        assert!(root().join(package).join("Cargo.toml").exists());
    }
    for program in ["/out/bin/sandfork ", "/out/bin/sandfork-server "] {
        assert!(recipe.contains(program), "{program}");
    }
    let oldest = text("Cargo.toml");
    let oldest = after(&oldest, "rust-version = ")[0].trim_matches('"');
    assert!(recipe.contains(&format!("rust:{oldest}-")), "{oldest}");

    let arguments = crate::args::ServeArguments {
        sandboxes: crate::args::SandboxArguments {
            config: Some(root().join("packaging/server.toml")),
            ..<_>::default()
        },
        ..<_>::default()
    };
    let read = Config::of(&arguments).expect("the server takes it");
    assert_eq!(read.listen.port().to_string(), one("EXPOSE "));
    assert!(!read.listen.ip().is_loopback());
    assert!(recipe.contains(&format!("127.0.0.1:{}/readyz", read.listen.port())));
}

#[test]
fn the_units_start_the_server() {
    let unit = text("packaging/sandfork-server.service");
    let value = |key: &str| after(&unit, key)[0];
    let words = value("ExecStart=").split(' ').map(str::to_owned);
    let served = served(&words.collect::<Vec<_>>());
    assert_eq!(
        served.serve.sandboxes.config,
        Some(PathBuf::from("/etc/sandfork/server.toml"))
    );
    // It says when it is ready, reads its tokens again at SIGHUP, and makes cgroups.
    assert_eq!(value("Type="), "notify");
    assert!(value("ExecReload=").contains("-HUP"));
    assert_eq!(value("Delegate="), "yes");
    // Its processes live in cgroups below the unit's. They must not get the SIGTERM that lets runs end.
    assert_eq!(value("KillMode="), "mixed");
    // The exit code of a wrong configuration.
    assert_eq!(value("RestartPreventExitStatus="), "2");
    let socket = text("packaging/sandfork-server.socket");
    let address: std::net::SocketAddr = after(&socket, "ListenStream=")[0].parse().expect("one");
    let arguments = crate::args::ServeArguments {
        listen: Some(address),
        ..<_>::default()
    };
    Config::of(&arguments).expect("it may listen there without tokens");
}
