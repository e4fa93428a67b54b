//! Tests of `network.mode = "allow"`: guests reach the hosts of their policy and no other. The servers and the
//! resolver run on loopback addresses (`servers.py`).

mod servers;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use sandfork::internals::plan::SandboxPlan as _;
use sandfork::internals::supervisor::SandboxProcesses as _;
use sandfork::session::Session;
use sandfork::{Outcome, Status};

use self::servers::{SECRET, Servers};
use crate::check::{ended, fine, shown};
use crate::leftovers::traces::wait_until;
use crate::need::Need;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, name_of, needing, tests};
use crate::world::{Python, World, run};

pub fn tests(world: &World) -> Vec<Test> {
    let mut tests = tests![
        clients_reach_the_hosts_of_the_policy,
        a_hostile_guest_reaches_no_other_host,
        credential_reaches_the_server_but_not_the_guest,
        requests_are_checked_against_the_rules,
        refusals_say_why,
        ip_address_of_the_policy_is_reached,
        an_empty_list_allows_nothing,
        loopback_works_with_egress,
        a_server_of_this_machine_is_reached_through_the_proxy,
        network_limits_are_enforced,
        a_session_reports_each_cell,
        the_caller_decides_on_each_connection,
        killed_egress_process_is_restarted,
        each_sandbox_has_its_own_authority,
        egress_process_leaves_nothing,
    ];
    let in_each = world.pythons.iter().map(|python: &Python| {
        let name = format!("packages::cpython-{}", python.version_text());
        let recipe = standard().patient().python(&python.venv);
        Test::new(name_of(module_path!(), &name), move |world: &World| {
            packages_reach_the_hosts_of_the_policy(world, recipe);
        })
        .needs(Need::Packages)
    });
    tests.extend(in_each);
    tests.extend(needing(
        Need::EveryProcess,
        tests![egress_process_is_unprivileged],
    ));
    let paused = tests![pause_does_not_reset_the_byte_limit];
    tests.extend(needing(Need::Snapshots, paused));
    tests
}

/// Allows hosts in every mode: HTTP, TLS that is terminated or passed through, and raw TCP.
fn usual(servers: &Servers) -> Recipe {
    let [http, https, echo] = servers.ports();
    allow(
        servers,
        &[
            &format!("{{ host = 'api.example', ports = [{http}], private = true }}"),
            &format!("{{ host = 'tls.example', ports = [{https}], private = true }}"),
            &format!("{{ host = 'raw.example', ports = [{echo}], private = true, raw = true }}"),
        ],
    )
}

fn allow(servers: &Servers, entries: &[&str]) -> Recipe {
    standard()
        .set("network.mode=allow")
        .set(format!("network.allow=[{}]", entries.join(", ")))
        .set(format!("network.resolver=127.0.0.1:{}", servers.resolver()))
        .patient()
}

fn clients_reach_the_hosts_of_the_policy(world: &World) {
    let servers = Servers::start(world);
    let [_, https, _] = servers.ports();
    // In the second iteration, the egress process terminates TLS.
    let judged = format!(
        "network.allow=[{{ host = 'tls.example', ports = [{https}], private = true, methods = ['GET'] }}]"
    );
    let whole = usual(&servers);
    // The server itself supports only HTTP/1.1.
    for (recipe, version) in [(whole.clone(), "1.1"), (whole.set(judged), "2")] {
        let sandbox = servers.sandbox(world, recipe);
        let outcome = run(
            &sandbox,
            servers.program(include_str!("clients.py")).as_str(),
        );
        fine(&outcome);
        let programs = ["curl", "node"].into_iter();
        let programs = programs.filter(|name| Path::new("/usr/bin").join(name).exists());
        let mut expected = vec![("urllib", 4), ("http.client", 12), ("socket", 2)];
        expected.extend(programs.map(|name| (name, 4)));
        let speaks = format!("curl speaks HTTP/{version}");
        if expected.contains(&("curl", 4)) {
            expected.push((&speaks, 1));
        }
        for (client, count) in expected {
            let lines = outcome
                .stdout()
                .lines()
                .filter(|line| *line == client)
                .count();
            assert_eq!(lines, count, "{client}: {}", shown(&outcome));
        }
    }
}

fn packages_reach_the_hosts_of_the_policy(world: &World, recipe: Recipe) {
    let servers = Servers::start(world);
    let [http, https, _] = servers.ports();
    let recipe = recipe
        .set("network.mode=allow")
        .set(format!("network.resolver=127.0.0.1:{}", servers.resolver()))
        .set(format!(
            "network.allow=[{{ host = 'api.example', ports = [{http}], private = true }}, \
             {{ host = 'tls.example', ports = [{https}], private = true, paths = ['/a'] }}]"
        ));
    let sandbox = servers.sandbox(world, recipe);
    let outcome = run(
        &sandbox,
        servers.program(include_str!("packages.py")).as_str(),
    );
    fine(&outcome);
    assert_eq!(outcome.stdout().lines().count(), 10, "{}", shown(&outcome));
}

fn a_hostile_guest_reaches_no_other_host(world: &World) {
    let servers = Servers::start(world);
    let [http, https, _] = servers.ports();
    let names = "loopback mapped translated tunnel metadata nowhere";
    let mut entries: Vec<String> = names
        .split(' ')
        .map(|name| format!("{{ host = '{name}.example', ports = [{http}] }}"))
        .collect();
    for (host, port, rest) in [
        ("api.example", http, ""),
        ("usual.example", 80, ""),
        ("rebinding.example", http, ""),
        (
            "tls.example",
            https,
            ", credential = { header = 'X-Key', value = '${TOKEN}' }",
        ),
    ] {
        entries.push(format!(
            "{{ host = '{host}', ports = [{port}], private = true{rest} }}"
        ));
    }
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let sandbox = servers.sandbox(world, allow(&servers, &entries));
    let outcome = run(
        &sandbox,
        servers.program(include_str!("hostile.py")).as_str(),
    );
    fine(&outcome);
    assert!(outcome.stdout().ends_with("held\n"), "{}", shown(&outcome));
    let log = servers.log();
    let asked = log["names"].as_array().expect("a list");
    assert!(
        asked
            .iter()
            .all(|name| !name.to_string().contains("secret")),
        "{log}"
    );
    assert!(
        asked.iter().any(|name| name == "rebinding.example"),
        "{log}"
    );
    let smuggled = log["requests"].as_array().expect("a list").iter();
    assert_eq!(
        smuggled.filter(|it| it["path"] == "/smuggled").count(),
        0,
        "{log}"
    );
    let reasons: Vec<&str> = outcome
        .network()
        .iter()
        .filter_map(|it| it.reason)
        .collect();
    for reason in [
        "host",
        "name",
        "own-address",
        "metadata-address",
        "unusable-address",
    ] {
        assert!(reasons.contains(&reason), "{reason}: {}", shown(&outcome));
    }
    assert!(!shown(&outcome).contains(SECRET));
}

fn credential_reaches_the_server_but_not_the_guest(world: &World) {
    let servers = Servers::start(world);
    let [_, https, _] = servers.ports();
    let entry = format!(
        "{{ host = 'tls.example', ports = [{https}], private = true, \
         credential = {{ header = 'Authorization', value = 'Bearer ${{TOKEN}}' }} }}"
    );
    let sandbox = servers.sandbox(world, allow(&servers, &[&entry]));
    let code = format!(
        "import json, urllib.request\n\
         request = urllib.request.Request('https://tls.example:{https}/', headers={{'Authorization': 'Bearer mine'}})\n\
         seen = json.loads(urllib.request.urlopen(request).read())\n\
         print(seen['headers']['authorization'][-7:], len(seen['headers']))"
    );
    let outcome = run(&sandbox, code.as_str());
    fine(&outcome);
    // The guest sees the credential only because the server echoes it.
    assert!(
        outcome.stdout().starts_with(&SECRET[SECRET.len() - 7..]),
        "{}",
        shown(&outcome)
    );
    let log = servers.log();
    let authorization = &log["requests"][0]["headers"]["authorization"];
    assert_eq!(*authorization, format!("Bearer {SECRET}"), "{log}");
    let plan = serde_json::to_string(sandbox.plan()).expect("a plan is JSON");
    for text in [&plan, &format!("{sandbox:?}"), &shown(&outcome)] {
        assert!(!text.contains(SECRET), "{text}");
    }
    let mut recipe = allow(&servers, &[&entry]);
    recipe = recipe.set("env.set.COPY=${TOKEN}");
    let outcome = run(
        &servers.sandbox(world, recipe),
        "import os; print(os.environ['COPY'])",
    );
    // References are resolved in credentials only.
    assert_eq!(outcome.stdout(), "${TOKEN}\n");
}

fn requests_are_checked_against_the_rules(world: &World) {
    let servers = Servers::start(world);
    let [http, https, _] = servers.ports();
    let entries = [
        format!(
            "{{ host = 'api.example', ports = [{http}], private = true, methods = ['GET'], paths = ['/a/*'] }}"
        ),
        format!(
            "{{ host = 'tls.example', ports = [{https}], private = true, methods = ['GET'], paths = ['/a/*'] }}"
        ),
    ];
    let sandbox = servers.sandbox(
        world,
        allow(&servers, &entries.each_ref().map(String::as_str)),
    );
    let code = format!(
        "import urllib.request, urllib.error\n\
         for server in 'http://api.example:{http}', 'https://tls.example:{https}':\n\
         \x20   for method, path in ('GET', '/a/b'), ('POST', '/a/b'), ('GET', '/b'), ('GET', '/a/../b'):\n\
         \x20       request = urllib.request.Request(server + path, method=method)\n\
         \x20       try:\n            print(urllib.request.urlopen(request).status)\n\
         \x20       except urllib.error.HTTPError as error:\n            print(error.code, error.read().decode())"
    );
    let outcome = run(&sandbox, code.as_str());
    fine(&outcome);
    let stdout = outcome.stdout();
    let statuses: Vec<&str> = stdout
        .lines()
        .filter_map(|line| line.get(..3).filter(|it| it.parse::<u16>().is_ok()))
        .collect();
    let expected = ["200", "403", "403", "403", "200", "403", "403", "403"];
    assert_eq!(statuses, expected, "{}", shown(&outcome));
    assert!(
        stdout.contains("`methods`") && stdout.contains("`paths`"),
        "{stdout}"
    );
    let refused: Vec<_> = outcome
        .network()
        .iter()
        .filter_map(|it| it.request.as_deref())
        .collect();
    assert!(refused.contains(&"POST /a/b"), "{}", shown(&outcome));
}

fn refusals_say_why(world: &World) {
    let servers = Servers::start(world);
    let sandbox = servers.sandbox(world, usual(&servers));
    let cases = [
        (
            "import urllib.request\nurllib.request.urlopen('http://other.example/')",
            "403",
        ),
        (
            "import urllib.request\nurllib.request.urlopen('https://other.example/')",
            "403",
        ),
        (
            "import socket\nsocket.create_connection(('other.example', 80))",
            "gaierror",
        ),
    ];
    for (code, expected) in cases {
        let outcome = run(&sandbox, code);
        ended(&outcome, Status::Exception);
        assert!(
            shown(&outcome).contains(expected),
            "{code}: {}",
            shown(&outcome)
        );
        let refusal = &outcome.network()[0];
        assert_eq!(
            (refusal.host.as_str(), refusal.reason),
            ("other.example", Some("host"))
        );
        assert_eq!(refusal.verdict, "refused");
        let denial = outcome.denied().iter().find(|it| it.operation == "connect");
        let set = denial.and_then(|denial| denial.set.as_deref());
        assert_eq!(set, Some("network.allow=other.example"));
    }
}

// A proxy stands in for the host with this address, so that no packet leaves the machine.
fn ip_address_of_the_policy_is_reached(world: &World) {
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = proxy.local_addr().expect("a local address").port();
    let sandbox = world.build(
        standard()
            .set("network.allow={ host = '1.1.1.1', ports = [443, 5432], raw = true }")
            .set(format!("network.proxy=http://127.0.0.1:{port}"))
            .patient(),
    );
    let serving = thread::spawn(move || {
        for stream in proxy.incoming().take(2) {
            let mut stream = stream.expect("a connection");
            let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
            let asked = lines.next().expect("a line").expect("text");
            lines
                .find(|line| line.as_ref().is_ok_and(String::is_empty))
                .expect("a final line")
                .expect("text");
            write!(stream, "HTTP/1.1 200 OK\r\n\r\n{asked}\n").expect("the peer reads");
        }
    });
    let code = "import socket\n\
                for port in 443, 5432:\n\
                \x20   stream = socket.create_connection(('1.1.1.1', port))\n\
                \x20   print(stream.makefile().readline(), end='')\n\
                for address in ('1.1.1.1', 80), ('8.8.8.8', 443):\n\
                \x20   try: socket.create_connection(address)\n\
                \x20   except OSError as error: print(error.strerror)";
    let outcome = run(&sandbox, code);
    fine(&outcome);
    assert_eq!(
        outcome.stdout(),
        "CONNECT 1.1.1.1:443 HTTP/1.1\nCONNECT 1.1.1.1:5432 HTTP/1.1\n\
         Connection refused\nNetwork is unreachable\n"
    );
    serving.join().expect("the thread does not panic");
}

fn an_empty_list_allows_nothing(world: &World) {
    let sandbox = world.build(standard().set("network.mode=allow"));
    let code = "import socket\n\
                for host in 'localhost.localdomain', 'example.org', 'a':\n\
                \x20   try: print(socket.getaddrinfo(host, 80))\n\
                \x20   except socket.gaierror: print('no')";
    let outcome = run(&sandbox, code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "no\nno\nno\n");
    assert_eq!(outcome.usage().sent_bytes, 0);
}

// Also on a port that an entry names for another address.
fn loopback_works_with_egress(world: &World) {
    let servers = Servers::start(world);
    let sandbox = servers.sandbox(world, usual(&servers));
    let [http, ..] = servers.ports();
    let code = format!(
        "import socket, threading, urllib.request\n\
         server = socket.create_server(('127.0.0.1', {http}))\n\
         client = socket.create_connection(('localhost', {http}))\n\
         served = server.accept()[0]\n\
         client.sendall(b'own')\n\
         assert served.recv(3) == b'own'\n\
         print(urllib.request.urlopen('http://api.example:{http}/').status)\n\
         any = socket.create_server(('127.0.0.1', 0))\n\
         print(any.getsockname()[0])"
    );
    let outcome = run(&sandbox, code.as_str());
    fine(&outcome);
    assert_eq!(outcome.stdout(), "200\n127.0.0.1\n");
}

// Applies to clients that honour a proxy. The guest's own server is reached by another name.
fn a_server_of_this_machine_is_reached_through_the_proxy(world: &World) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = server.local_addr().expect("a local address").port();
    let serving = thread::spawn(move || {
        for stream in server.incoming().take(2) {
            let mut stream = stream.expect("a connection");
            let lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
            let end = lines.map_while(Result::ok).position(|it| it.is_empty());
            assert!(end.is_some());
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhost";
            stream.write_all(answer.as_bytes()).expect("the peer reads");
        }
    });
    for (machine, own) in [("127.0.0.1", "localhost"), ("localhost", "127.0.0.1")] {
        let entry = format!("{{ host = '{machine}', ports = [{port}], private = true }}");
        let recipe = standard().set(format!("network.allow=[{entry}]"));
        let code = format!(
            "import http.server, threading, urllib.request\n\
             class Own(http.server.BaseHTTPRequestHandler):\n\
             \x20   def do_GET(self):\n        self.send_response(200)\n        self.end_headers()\n\
             \x20       self.wfile.write(b'guest')\n\
             \x20   def log_message(self, *args): pass\n\
             own = http.server.HTTPServer(('127.0.0.1', 0), Own)\n\
             threading.Thread(target=own.serve_forever, daemon=True).start()\n\
             for server in 'http://{machine}:{port}', 'http://{own}:%d' % own.server_port:\n\
             \x20   print(urllib.request.urlopen(server).read().decode())"
        );
        let outcome = run(&world.build(recipe.patient()), code.as_str());
        fine(&outcome);
        assert_eq!(outcome.stdout(), "host\nguest\n", "{machine}");
    }
    serving.join().expect("the thread does not panic");
}

fn network_limits_are_enforced(world: &World) {
    let servers = Servers::start(world);
    let [.., echo] = servers.ports();
    let recipe = usual(&servers)
        .set("network.connections=8")
        .set("network.bytes=1MiB");
    let sandbox = servers.sandbox(world, recipe);
    let code = format!(
        "import socket\n\
         def works(stream):\n    try:\n        stream.sendall(b'x')\n        return stream.recv(1) == b'x'\n\
         \x20   except OSError:\n        return False\n\
         held = [socket.create_connection(('raw.example', {echo})) for _ in range(12)]\n\
         print(sum(map(works, held)))\n\
         stream = next(filter(works, held))\n\
         moved = 0\n\
         try:\n    while True:\n        stream.sendall(bytes(4096))\n        moved += len(stream.recv(4096)) or 1 / 0\n\
         except (OSError, ZeroDivisionError):\n    print(moved < 1 << 20)"
    );
    let outcome = run(&sandbox, code.as_str());
    fine(&outcome);
    assert_eq!(outcome.stdout(), "8\nTrue\n", "{}", shown(&outcome));
    let usage = outcome.usage();
    assert!(
        usage.sent_bytes + usage.received_bytes <= 1 << 20,
        "{usage:?}"
    );
    let reasons: Vec<&str> = outcome
        .network()
        .iter()
        .filter_map(|it| it.reason)
        .collect();
    assert!(
        reasons.contains(&"connections") && reasons.contains(&"bytes"),
        "{reasons:?}"
    );
}

fn cell(session: &mut Session, code: &str) -> Outcome {
    let report = session.run(code).expect("a cell");
    report.outcome().clone()
}

fn a_session_reports_each_cell(world: &World) {
    let servers = Servers::start(world);
    let [.., echo] = servers.ports();
    let sandbox = Arc::new(servers.sandbox(world, usual(&servers)));
    let mut session = sandbox.session().expect("a session");
    let open = cell(
        &mut session,
        &format!(
            "import socket\nstream = socket.create_connection(('raw.example', {echo}))\nstream.sendall(b'abc')\nassert stream.recv(3) == b'abc'"
        ),
    );
    fine(&open);
    let [connection] = open.network() else {
        panic!("{}", shown(&open));
    };
    assert!(connection.open);
    assert_eq!((connection.sent, connection.received), (3, 3));
    let quiet = cell(&mut session, "1 + 1");
    assert_eq!(quiet.usage().connections, 0);
    let [still] = quiet.network() else {
        panic!("{}", shown(&quiet));
    };
    assert_eq!((still.open, still.sent), (true, 0));
    let closed = cell(
        &mut session,
        "stream.sendall(b'de')\nassert stream.recv(2) == b'de'\nstream.close()",
    );
    assert_eq!(closed.usage().sent_bytes, 2, "{}", shown(&closed));
}

// After a pause the session has another worker, but the same byte limit.
fn pause_does_not_reset_the_byte_limit(world: &World) {
    let servers = Servers::start(world);
    let [.., echo] = servers.ports();
    let recipe = usual(&servers)
        .set("network.bytes=1MiB")
        .set("session.pause_after=50ms");
    let sandbox = Arc::new(servers.sandbox(world, recipe));
    let mut session = sandbox.session().expect("a session");
    let moves = format!(
        "import socket\n\
         def move(most):\n\
         \x20   moved = 0\n\
         \x20   try:\n\
         \x20       with socket.create_connection(('raw.example', {echo})) as stream:\n\
         \x20           while moved < most:\n\
         \x20               stream.sendall(bytes(4096))\n\
         \x20               moved += len(stream.recv(4096)) or 1 / 0\n\
         \x20   except (OSError, ZeroDivisionError): pass\n\
         \x20   return moved\n\
         move(300_000) >= 300_000"
    );
    let mut left = cell(&mut session, &moves);
    for moved in ["move(600_000) < 300_000", "move(600_000) < 1 << 16"] {
        fine(&left);
        assert_eq!(left.value(), Some(&true.into()), "{}", shown(&left));
        assert!(wait_until(|| session.is_paused()), "it is not paused");
        left = cell(&mut session, moved);
    }
    fine(&left);
    assert_eq!(left.value(), Some(&true.into()), "{}", shown(&left));
}

fn the_caller_decides_on_each_connection(world: &World) {
    let servers = Servers::start(world);
    let [http, ..] = servers.ports();
    let sandbox = Arc::new(servers.sandbox(world, usual(&servers).set("network.ask=true")));
    let fetch = format!(
        "import urllib.request\nurllib.request.urlopen('http://api.example:{http}/').status"
    );
    // A run has no callback to decide, nor has a session without a function.
    let mut session = sandbox.session().expect("a session");
    for outcome in [run(&sandbox, fetch.as_str()), cell(&mut session, &fetch)] {
        let [connection] = outcome.network() else {
            panic!("{}", shown(&outcome));
        };
        assert_eq!(connection.reason, Some("undecided"), "{}", shown(&outcome));
        let set = outcome.denied().iter().find_map(|it| it.set.as_deref());
        assert_eq!(set, Some("network.ask=false"));
    }
    let (asked, seen) = std::sync::mpsc::channel();
    session.on_connect(move |host, port, addresses| {
        asked
            .send((host.to_owned(), port, addresses.to_vec()))
            .is_ok_and(|()| port == http)
    });
    fine(&cell(&mut session, &fetch));
    let local = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert_eq!(
        seen.recv(),
        Ok(("api.example".to_owned(), http, vec![local]))
    );
    assert_eq!(seen.try_recv().ok(), None);
}

fn killed_egress_process_is_restarted(world: &World) {
    let servers = Servers::start(world);
    let [http, https, echo] = servers.ports();
    let judged = format!(
        "network.allow=[{{ host = 'tls.example', ports = [{https}], private = true, methods = ['GET'] }}]"
    );
    let sandbox = Arc::new(servers.sandbox(world, usual(&servers).set(judged)));
    let mut session = sandbox.session().expect("a session");
    let fetch = format!(
        "import socket, urllib.request\n\
         def fetch():\n    for url in 'http://api.example:{http}/', 'https://tls.example:{https}/':\n\
         \x20       print(urllib.request.urlopen(url).status)\n\
         fetch()\nstream = socket.create_connection(('raw.example', {echo}))\nstream.sendall(b'x'); stream.recv(1)"
    );
    fine(&cell(&mut session, &fetch));
    let first = sandbox.egress_process().expect("a process");
    kill(first);
    // The live connection ends. A new egress process with the same certificate authority serves the next ones.
    let outcome = cell(
        &mut session,
        "try:\n    print(stream.recv(1))\nexcept OSError as error:\n    print(type(error).__name__)\nfetch()",
    );
    fine(&outcome);
    let stdout = outcome.stdout();
    assert!(stdout.ends_with("200\n200\n"), "{}", shown(&outcome));
    assert_ne!(sandbox.egress_process(), Some(first));
    // Killed between cells, and before later runs.
    kill(sandbox.egress_process().expect("a process"));
    fine(&cell(&mut session, "fetch()"));
    kill(sandbox.egress_process().expect("a process"));
    fine(&run(&sandbox, fetch.as_str()));
}

fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("the process is alive");
}

// According to the kernel's view of the process.
fn egress_process_is_unprivileged(world: &World) {
    let sandbox = world.build(standard().set("network.mode=allow"));
    let pid = sandbox.egress_process().expect("a process");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is alive");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}"))
            .trim()
            .to_owned()
    };
    assert_eq!(field("Name:"), "sandfork-egress");
    assert_eq!(
        (field("Seccomp:"), field("NoNewPrivs:")),
        ("2".to_owned(), "1".to_owned())
    );
    assert_eq!(field("Threads:"), "1");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(u64::from_str_radix(&field(set), 16), Ok(0), "{set}");
    }
    let user = world.host.machine.user;
    let uid = user.drop_to.map_or(user.uid, |ids| ids.uid);
    assert_eq!(field("Uid:"), [uid.to_string().as_str(); 4].join("\t"));
    if user.is_root() {
        assert_eq!(field("Groups:"), "");
    } else {
        // Not dumpable: other processes of this user cannot read its memory.
        fs::read(format!("/proc/{pid}/environ")).expect_err("it is closed");
    }
}

fn each_sandbox_has_its_own_authority(world: &World) {
    let code = "import os\nprint(open(os.environ['SSL_CERT_FILE']).read().rstrip().rpartition('BEGIN')[2])";
    let recipe = || standard().set("network.mode=allow");
    let (one, other) = (world.build(recipe()), world.build(recipe()));
    let (first, second) = (run(&one, code), run(&other, code));
    fine(&first);
    assert_ne!(first.stdout(), second.stdout());
    assert_eq!(first.stdout(), run(&one, code).stdout());
}

fn egress_process_leaves_nothing(world: &World) {
    let sandbox = world.build(standard().set("network.mode=allow"));
    let pid = sandbox.egress_process().expect("a process");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
    let there = || nix::sys::signal::kill(pid, None).is_ok();
    assert!(there());
    drop(sandbox);
    assert!(wait_until(|| !there()));
}
