//! Tests of `network.mode = "loopback"`: TCP and UDP among a guest's own processes, and nothing else.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sandfork::{Cancel, LimitName, Mechanism, Request, Status};

use crate::check::{ended, fine, limited, shown};
use crate::need::Need;
use crate::outcomes::endings::AtFirstOutput;
use crate::recipe::{Recipe, standard};
use crate::test::{Test, name_of, tests};
use crate::world::{Python, World, run};

pub fn tests(world: &World) -> Vec<Test> {
    let mut tests = tests![
        without_a_network_nothing_listens,
        missing_certificates_are_explained,
        guests_can_bind_service_ports,
        the_hosts_services_cannot_be_reached,
        a_second_tenant_cannot_connect,
        nothing_of_one_run_reaches_the_next,
        a_session_keeps_its_server,
        sockets_without_descriptors_are_counted,
        sockets_do_not_delay_the_end,
        passed_socket_does_not_linger,
        a_moderate_number_of_sockets_is_fine,
    ];
    let programs = |name: String, recipe: Recipe| {
        Test::new(name, move |world: &World| {
            let outcome = world.run(recipe, include_str!("programs.py"));
            fine(&outcome);
            assert_eq!(outcome.stdout().lines().count(), 9, "{}", shown(&outcome));
        })
    };
    tests.push(programs(name_of(module_path!(), "programs"), loopback()));
    let in_each = world.pythons.iter().map(|python: &Python| {
        let name = format!("programs::cpython-{}", python.version_text());
        let name = name_of(module_path!(), &name);
        programs(name, loopback().python(&python.venv)).needs(Need::Packages)
    });
    tests.extend(in_each);
    tests
}

fn loopback() -> Recipe {
    standard().set("network.mode=loopback").patient()
}

// The guest's network has no other process that serves these ports.
fn guests_can_bind_service_ports(world: &World) {
    let code = "import socket\nsocket.create_server(('127.0.0.1', 80))\nprint('listens')";
    let outcome = world.run(loopback(), code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "listens\n");
}

// asyncio skips addresses for which it cannot create a socket. It must not then report a server.
fn without_a_network_nothing_listens(world: &World) {
    let listeners = [
        "import asyncio\nasyncio.run(asyncio.start_server(print, None, 8000))",
        "import asyncio\nasyncio.run(asyncio.start_server(print, '127.0.0.1', 0))",
        "import asyncio\nawait asyncio.start_server(print, 'localhost', 0)",
        "import socket\nsocket.create_server(('127.0.0.1', 0))",
        "import http.server as h\nh.HTTPServer(('localhost', 0), h.BaseHTTPRequestHandler)",
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1/')",
    ];
    for code in listeners {
        let outcome = world.with_shared(standard(), |sandbox| run(sandbox, code));
        ended(&outcome, Status::Exception);
        let printed = shown(&outcome);
        assert!(
            printed.contains("this sandbox has no network"),
            "{code}\n{printed}"
        );
        assert!(printed.contains("network.mode"), "{code}\n{printed}");
    }
    // With a network, a socket that is refused for another reason has no such remedy.
    let raw = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1)";
    let outcome = world.with_shared(loopback(), |sandbox| run(sandbox, raw));
    ended(&outcome, Status::Exception);
    assert!(
        !shown(&outcome).contains("no network"),
        "{}",
        shown(&outcome)
    );
}

// `requests` loads certificates before it connects; Debian's package uses a file of the system.
fn missing_certificates_are_explained(world: &World) {
    let code = r#"
import os
os.makedirs('requests')
open('requests/__init__.py', 'w').close()
open('requests/adapters.py', 'w').write("""
class HTTPAdapter:
    def cert_verify(self, conn, url, verify, cert):
        raise OSError('Could not find a suitable TLS CA certificate bundle')
""")
import requests.adapters
try:
    requests.adapters.HTTPAdapter().cert_verify(None, 'https://a.example', True, None)
except OSError as error:
    print(error)"#;
    for (recipe, explained) in [(standard(), true), (loopback(), false)] {
        let outcome = world.with_shared(recipe, |sandbox| run(sandbox, code));
        fine(&outcome);
        let printed = outcome.stdout();
        assert!(printed.contains("certificate bundle"), "{printed}");
        assert_eq!(printed.contains("`network.allow`"), explained, "{printed}");
    }
}

// close(2) blocks for such a socket. If the supervisor closed its last descriptor, no deadline would interrupt it.
fn passed_socket_does_not_linger(world: &World) {
    let linger = "import os, socket, struct, time\n\
        server = socket.create_server(('127.0.0.1', 0))\n\
        client = socket.create_connection(server.getsockname())\n\
        peer, _ = server.accept()\n\
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 600))\n\
        client.setblocking(False)\n\
        try:\n    while True: client.send(bytes(65536))\n\
        except BlockingIOError: pass\n\
        link = socket.socket(fileno=os.dup(1023))\n\
        socket.send_fds(link, [b'\\x08'], [client.fileno()])\n\
        os.close(client.detach())\n\
        end = time.monotonic() + 30\n\
        while time.monotonic() < end: time.sleep(0.1)\n\
        print('outlived')";
    let outcome = world.run(loopback().set("limits.wall=1s"), linger);
    limited(&outcome, LimitName::Wall, Mechanism::Deadline);
    assert_eq!(outcome.stdout(), "", "{}", shown(&outcome));
}

// This process listens on a port of the host.
fn the_hosts_services_cannot_be_reached(world: &World) {
    let service = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the host has a loopback");
    let address = service.local_addr().expect("a local address");
    let answers = thread::spawn(move || service.accept().map(drop));
    let code = format!(
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', {}), 5)\n\
         except ConnectionRefusedError:\n    print('refused')",
        address.port()
    );
    let outcome = world.with_shared(loopback(), |sandbox| run(sandbox, code.as_str()));
    fine(&outcome);
    assert_eq!(outcome.stdout(), "refused\n");
    // The host itself can connect, and is the service's first client.
    TcpStream::connect(address).expect("the service listens");
    answers
        .join()
        .expect("the connection is accepted")
        .expect("the connection is accepted");
}

const PORT: u16 = 8765;

// One guest listens while another guest of the same zygote tries to connect.
fn a_second_tenant_cannot_connect(world: &World) {
    let sandbox = world.build(loopback());
    let serve = format!(
        "import socket, time\nserver = socket.create_server(('127.0.0.1', {PORT}))\n\
         server.settimeout(1)\ntry:\n    server.accept()\nexcept TimeoutError:\n    print('alone')\n\
         except socket.timeout:\n    print('alone')"
    );
    // The other tenant can bind the same port.
    let attempt = format!(
        "import socket, time\nfor _ in range(5):\n    try:\n\
         \x20       socket.create_connection(('127.0.0.1', {PORT}), 1)\n        print('connected')\n\
         \x20   except ConnectionRefusedError:\n        time.sleep(0.1)\n\
         socket.create_server(('127.0.0.1', {PORT}))\nprint('free')"
    );
    thread::scope(|scope| {
        let server = scope.spawn(|| run(&sandbox, serve.as_str()));
        let client = run(&sandbox, attempt.as_str());
        fine(&client);
        assert_eq!(client.stdout(), "free\n");
        let server = server.join().expect("the thread does not panic");
        fine(&server);
        assert_eq!(server.stdout(), "alone\n");
    });
}

// Ports of closed connections stay in TIME-WAIT for a minute, and the kernel keeps counters of all events.
fn nothing_of_one_run_reaches_the_next(world: &World) {
    let code = format!(
        "import socket\n\
         before = {{name: open('/proc/self/net/' + name).read() for name in ('snmp', 'netstat', 'tcp', 'sockstat')}}\n\
         counts = [line.split()[1:] for line in before['snmp'].splitlines() if line.startswith('Tcp:')]\n\
         tcp = dict(zip(*counts))\n\
         assert tcp['ActiveOpens'] == tcp['InSegs'] == tcp['OutRsts'] == '0', tcp\n\
         assert len(before['tcp'].splitlines()) == 1, before['tcp']\n\
         assert ' tw 0 ' in before['sockstat'], before['sockstat']\n\
         server = socket.socket()\n\
         server.bind(('127.0.0.1', {PORT}))\n\
         server.listen()\n\
         client = socket.create_connection(('127.0.0.1', {PORT}))\n\
         served = server.accept()[0]\n\
         served.close()\n\
         assert client.recv(1) == b''\n\
         client.close()\n\
         assert ' tw 1 ' in open('/proc/self/net/sockstat').read()\n\
         server.close()\n\
         again = socket.socket()\n\
         try:\n    again.bind(('127.0.0.1', {PORT}))\n\
         except OSError as error:\n    print(error.errno)"
    );
    let sandbox = world.build(loopback());
    for _ in 0..5 {
        let outcome = run(&sandbox, code.as_str());
        fine(&outcome);
        // EADDRINUSE: the run has left the state that must not reach the next run.
        assert_eq!(outcome.stdout(), "98\n");
    }
}

fn a_session_keeps_its_server(world: &World) {
    let sandbox = world.build(loopback());
    let mut session = Arc::new(sandbox).session().expect("a session");
    let mut cell = |code: &str| {
        let report = session.run(code).expect("a cell");
        fine(report.outcome());
        report.outcome().stdout().into_owned()
    };
    cell(
        "import asyncio\nasync def answer(reader, writer):\n    writer.write(b'here')\n    writer.close()\n\
         server = await asyncio.start_server(answer, '127.0.0.1', 0)\n\
         port = server.sockets[0].getsockname()[1]",
    );
    let printed = cell(
        "reader, writer = await asyncio.open_connection('127.0.0.1', port)\nprint(await reader.read())",
    );
    assert_eq!(printed, "b'here'\n");
}

/// Uses one listener and one client at a time: only the kernel's count shows connections in the backlog.
const BACKLOG: &str = "\
import socket
server = socket.create_server(('127.0.0.1', 0), backlog=4096)
data = bytes(100_000)
while True:
    with socket.create_connection(server.getsockname()) as client:
        client.send(data)
";

fn sockets_without_descriptors_are_counted(world: &World) {
    let sandbox = world.build(loopback().set("limits.memory=64MiB"));
    let outcome = run(&sandbox, BACKLOG);
    limited(&outcome, LimitName::Memory, Mechanism::Watchdog);
}

// The guest holds as many full sockets as it may until it is killed.
fn sockets_do_not_delay_the_end(world: &World) {
    let code = "\
import socket, sys, time
held = []
server = socket.create_server(('127.0.0.1', 0), backlog=4096)
for _ in range(60):
    client = socket.socket()
    client.connect(server.getsockname())
    client.setblocking(False)
    try:
        while client.send(bytes(65536)): pass
    except BlockingIOError: pass
    held.append(client)
print('ready', flush=True)
time.sleep(600)
";
    let sandbox = world.build(loopback().set("limits.memory=512MiB"));
    let cancel = Cancel::new().expect("a descriptor is available");
    let request = Request::python(code).cancel(&cancel);
    let outcome = sandbox.run_streaming(request, &mut AtFirstOutput(&cancel));
    let outcome = outcome.expect("the run completes");
    ended(&outcome, Status::Interrupted);
    assert_eq!(outcome.stdout(), "ready\n");
    // The kernel's cleanup after the kill has its own bound, far below this limit.
    let wall = outcome.usage().wall;
    assert!(wall < Duration::from_secs(120), "{}", shown(&outcome));
}

fn a_moderate_number_of_sockets_is_fine(world: &World) {
    let outcome = world.run(
        loopback(),
        "import socket, time\n\
         server = socket.create_server(('127.0.0.1', 0), backlog=128)\n\
         pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in range(100)]\n\
         time.sleep(0.2)\n\
         print(len(pairs))",
    );
    fine(&outcome);
    assert_eq!(outcome.stdout(), "100\n");
}
