//! Tests that the container recipe and the systemd units match the server's command line and configuration.

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

/// Returns the rest of each line that begins with this prefix.
fn after<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let lines = text.lines();
    lines.filter_map(|line| line.strip_prefix(prefix)).collect()
}

/// Parses the arguments of a command line that starts the server.
fn parse_command(command: &[String]) -> Arguments {
    let program = Path::new(&command[0]).file_name().expect("a name");
    assert_eq!(
        (program.to_str(), command[1].as_str()),
        (Some("sandfork"), "server")
    );
    Arguments::try_parse_from(&command[1..]).expect("the server takes them")
}

#[test]
fn image_starts_the_server_with_its_files() {
    let recipe = text("packaging/Containerfile");
    let one = |word: &str| {
        let found = after(&recipe, word);
        assert_eq!(found.len(), 1, "{word}");
        found[0]
    };
    let list = |text: &str| serde_json::from_str::<Vec<String>>(text).expect("a list");
    let mut command = list(one("ENTRYPOINT "));
    command.extend(list(one("CMD ")));
    let config = parse_command(&command)
        .serve
        .sandboxes
        .config
        .expect("it names its configuration");

    // Every file that the recipe copies from the repository exists, and the configuration is among them.
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

    // The programs are built from the packages that the recipe installs.
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
fn units_start_the_server() {
    let unit = text("packaging/sandfork-server.service");
    let value = |key: &str| after(&unit, key)[0];
    let words = value("ExecStart=").split(' ').map(str::to_owned);
    let command = parse_command(&words.collect::<Vec<_>>());
    assert_eq!(
        command.serve.sandboxes.config,
        Some(PathBuf::from("/etc/sandfork/server.toml"))
    );
    // The server notifies systemd when it is ready, rereads its tokens on SIGHUP, and creates cgroups.
    assert_eq!(value("Type="), "notify");
    assert!(value("ExecReload=").contains("-HUP"));
    assert_eq!(value("Delegate="), "yes");
    // Its processes live in cgroups below that of the unit. They must not receive SIGTERM, which starts the graceful
    // shutdown.
    assert_eq!(value("KillMode="), "mixed");
    // The exit code of an invalid configuration.
    assert_eq!(value("RestartPreventExitStatus="), "2");
    let socket = text("packaging/sandfork-server.socket");
    let address: std::net::SocketAddr = after(&socket, "ListenStream=")[0].parse().expect("one");
    let arguments = crate::args::ServeArguments {
        listen: Some(address),
        ..<_>::default()
    };
    Config::of(&arguments).expect("it may listen there without tokens");
}
